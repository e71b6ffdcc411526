#!/usr/bin/env bash
# Packs the filter, built programs and dynamic modules for a release: archives, Debian packages, images as OCI layouts.
# Writes the checksums of all that is in OUT then. Needs what `just setup` installs.
#
# usage: package.sh OUT MODULE TRIPLE=PROGRAM... -- TRIPLE=LIBRARY...
#
# TRIPLE is Rust's name of the machine that PROGRAM is for, or LIBRARY, the filter as a dynamic module of Envoy's.
# One PROGRAM has to run here: it prints its completions and manual pages. Equal programs make equal files; their
# times are SOURCE_DATE_EPOCH.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
repository=$(cd "$here/../.." && pwd)

out=$(realpath "$1") module=$(realpath "$2")
shift 2
built_programs=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
    built_programs+=("$1")
    shift
done
shift
ca_bundle=$repository/.tools/certifi/certifi/cacert.pem
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$repository" log -1 --format=%ct)}
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT

# Prints what a machine is called by Go, and so by images and Debian.
arch() {
    case $1 in
    x86_64-*) echo amd64 ;;
    aarch64-*) echo arm64 ;;
    *) echo "package.sh: no name for the machine of $1" >&2; return 1 ;;
    esac
}

# Writes completions and manual pages with PROGRAM, and the notices of what is linked into it, into $stage.
documents() {
    mkdir "$stage/completions"
    "$1" completions bash >"$stage/completions/tollgate.bash"
    "$1" completions zsh >"$stage/completions/_tollgate"
    "$1" completions fish >"$stage/completions/tollgate.fish"
    "$1" man "$stage/man"
    python3 "$here/notices.py" tollgate-cli x86_64-unknown-linux-musl >"$stage/NOTICES.txt"
    cp "$repository/LICENSE" "$repository/README.md" "$repository/CHANGELOG.md" "$here/debian/tollgate.service" "$stage"
}

# archive TRIPLE PROGRAM: one folder with the program and what belongs to it.
archive() {
    local name=tollgate-$version-$1
    mkdir "$stage/$name"
    install -m 755 "$2" "$stage/$name/tollgate"
    cp -r "$stage"/{man,completions,*.txt,LICENSE,*.md,tollgate.service} "$stage/$name"
    tar -C "$stage" --sort=name --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX --mtime="@$SOURCE_DATE_EPOCH" \
        -c "$name" | gzip -9n >"$out/$name.tar.gz"
}

# debian PACKAGE TARGET TRIPLE: cargo-deb finds what was built in TARGET, a folder as cargo has one.
debian() {
    # shellcheck disable=SC2086 # some flags, or none
    CARGO_TARGET_DIR=$2 cargo deb --quiet --locked --no-build --no-strip ${CARGO_DEB_FLAGS:-} \
        --manifest-path "$repository/$1/Cargo.toml" --target "$3" --output "$out/" >/dev/null
}

# debian_program TRIPLE PROGRAM: the coordinator as a service, and its command line.
debian_program() {
    local built=$stage/target/$1/release
    mkdir -p "$built"
    install -m 755 "$2" "$built/tollgate"
    cp -r "$stage"/{man,completions,NOTICES.txt} "$built"
    gzip -9n "$built"/man/*
    debian coordinator/cli "$stage/target" "$1"
}

# debian_library TRIPLE LIBRARY: the dynamic module where an Envoy may look for it.
debian_library() {
    local built=$stage/library/$1/release
    mkdir -p "$built"
    install -m 644 "$2" "$built/libtollgate.so"
    install -m 644 "$library_notices" "$built/NOTICES.txt"
    debian filter/native "$stage/library" "$1"
}

declare -A programs
runs_here=""
for built in "${built_programs[@]}"; do
    program=$(realpath "${built#*=}")
    programs[${built%%=*}]=$program
    if "$program" --version >/dev/null 2>&1; then runs_here=$program; fi
done
[ -n "$runs_here" ] || { echo "package.sh: none of these programs runs here: ${built_programs[*]}" >&2; exit 1; }
version=$("$runs_here" --version | awk '{print $2}')
documents "$runs_here"

images=()
for built in "${built_programs[@]}"; do
    triple=${built%%=*} program=${programs[${built%%=*}]}
    archive "$triple" "$program"
    debian_program "$triple" "$program"
    images+=("$(arch "$triple")=$program")
done
python3 "$here/oci.py" coordinator "$out/tollgate-coordinator-$version.oci.tar" "$version" "$ca_bundle" \
    "$stage/NOTICES.txt" "${images[@]}"
for form in compat artifact; do
    python3 "$here/oci.py" "filter-$form" "$out/tollgate-filter-$version-$form.oci.tar" "$version" "$module"
done
library_notices=$out/libtollgate-$version.notices.txt
python3 "$here/notices.py" tollgate-native x86_64-unknown-linux-gnu >"$library_notices"
images=()
for built in "$@"; do
    triple=${built%%=*} library=$(realpath "${built#*=}")
    install -m 644 "$library" "$out/libtollgate-$version-$triple.so"
    debian_library "$triple" "$library"
    images+=("$(arch "$triple")=$library")
done
python3 "$here/oci.py" module "$out/tollgate-envoy-module-$version.oci.tar" "$version" "$library_notices" "${images[@]}"
install -m 644 "$module" "$out/tollgate_filter-$version.wasm"
python3 "$here/notices.py" tollgate-filter wasm32-wasip1 >"$out/tollgate_filter-$version.notices.txt"
cd "$out"
rm -f SHA256SUMS
sha256sum -- * >"$stage/sums"
install -m 644 "$stage/sums" SHA256SUMS
