#!/usr/bin/env bash
# Builds local images under the names that the demos use, for machines without an image registry: from Debian's
# packages, the Envoy of `just setup` and this checkout's binaries. Needs Docker, `just setup`, and root for
# debootstrap. Keeps images that exist or can be pulled; always rebuilds Tollgate's. There is none for Grafana,
# which Debian does not package.
#
# usage: envoy/demo/images/stand-ins.sh [release|debug]     build profile of coordinator and load; default: release
#
# Exits with 75 when images can be neither pulled nor built, because packages are unreachable.
set -euo pipefail
cd "$(dirname "$0")/../../.."

profile=${1:-release}
target=${CARGO_TARGET_DIR:-target}
dockerfile=envoy/demo/images/Dockerfile
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Succeeds if the image exists or can be pulled.
have() { docker image inspect "$1" >/dev/null 2>&1 || timeout 300 docker pull --quiet "$1" >/dev/null 2>&1; }

# Prints the image of that prefix in the Dockerfile or a compose file.
named() { grep -rhoE "$1:[A-Za-z0-9._-]+" "$dockerfile" envoy/demo/*/docker-compose.yml | head -n 1; }

# stand_in NAME: an image of the Dockerfile on standard input, with the files in $work/context beside it.
stand_in() {
    echo "stand-ins: making $1"
    mkdir -p "$work/context"
    cat >"$work/context/Dockerfile"
    docker build --quiet --tag "$1" "$work/context" >/dev/null
    rm -rf "$work/context"
}

# packaged NAME PACKAGE REST: Debian with PACKAGE, unless there is an image NAME; REST ends the Dockerfile.
packaged() {
    have "$1" && return
    stand_in "$1" <<END || exit 75
FROM $debian
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends $2 >/dev/null 2>&1 && rm -rf /var/lib/apt/lists
$3
END
}

debian=$(named debian)
if ! have "$debian"; then
    command -v debootstrap >/dev/null || apt-get install -y -qq --no-install-recommends debootstrap >/dev/null || exit 75
    echo "stand-ins: making $debian (two minutes)"
    debootstrap --variant=minbase --include=ca-certificates bookworm "$work/system" >"$work/log" 2>&1 ||
        { tail "$work/log" >&2; exit 75; }
    rm -rf "$work/system/var/cache/apt" "$work/system/var/lib/apt/lists" "$work/system/usr/share/"{doc,man,locale}
    tar -C "$work/system" -c . | docker import - "$debian" >/dev/null
    rm -rf "$work/system"
fi

envoy=$(named envoyproxy/envoy)
if ! have "$envoy"; then
    mkdir "$work/context"
    cp "${ENVOY_BIN:-.tools/envoy/envoy/_bin/envoy}" "$work/context/envoy"
    stand_in "$envoy" <<END
FROM $debian
COPY envoy /usr/local/bin/envoy
END
fi

packaged "$(named nginxinc/nginx-unprivileged)" nginx-light 'RUN printf "%s\n" "pid /tmp/nginx.pid;" "events {}" \
    "http { client_body_temp_path /tmp/b; proxy_temp_path /tmp/p; fastcgi_temp_path /tmp/f; uwsgi_temp_path /tmp/u;" \
    "scgi_temp_path /tmp/s; include /etc/nginx/conf.d/*.conf; }" >/etc/nginx/nginx.conf
USER 101
CMD ["nginx", "-e", "/dev/stderr", "-g", "daemon off;"]'
packaged "$(named rancher/mirrored-coreos-etcd)" "etcd-server etcd-client" 'CMD ["etcd"]'
packaged "$(named prom/prometheus)" prometheus 'RUN mkdir -p /prometheus && chown 65534:65534 /prometheus
USER 65534
ENTRYPOINT ["prometheus"]'

# Tollgate's images are the last stages of the Dockerfile, with existing binaries instead of its first stage.
mkdir -p "$work/out/state"
cp "$target/$profile/tollgate" "$target/$profile/tollgate-load" "$target/tollgate_filter.wasm" "$work/out"
strip "$work/out/tollgate" "$work/out/tollgate-load"
{
    printf 'FROM scratch AS build\nCOPY out /out\n'
    awk '/^FROM / { stage = $NF } stage != "build"' "$dockerfile"
} >"$work/Dockerfile"
for image in coordinator envoy load; do
    echo "stand-ins: making tollgate/$image:0.1.0"
    docker build --quiet --file "$work/Dockerfile" --target "$image" --tag "tollgate/$image:0.1.0" "$work" >/dev/null
done
