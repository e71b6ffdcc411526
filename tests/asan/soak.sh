#!/usr/bin/env bash
# Soaks real Envoys with the dynamic module built with AddressSanitizer; fails if it reports an invalid access.
#
# usage: tests/asan/soak.sh TARGET_DIR SOAK [OPTIONS]     the program `soak` and its options
set -euo pipefail
cd "$(dirname "$0")/../.."
dir=$1/asan
shift
host=$(rustc -vV | awk '/^host:/ {print $2}')
[[ $host == x86_64-* ]] || { echo "asan: only made for x86-64" >&2; exit 1; }
mkdir -p "$dir"
cc -O1 -fPIC -c tests/asan/alloc.c -o "$dir/alloc.o"
cc -O1 -fPIC -shared tests/asan/shadow.c -o "$dir/libshadow.so" -ldl

# The sanitizer's options are not stable, and only the module is built with them. Its library must be the first that
# the module asks for, or it finds no function of libc's behind its own.
wrapped=--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=posix_memalign,--wrap=free
RUSTC_BOOTSTRAP=1 RUSTFLAGS=-Zsanitizer=address cargo rustc --locked -p tollgate-native --lib --profile module \
    --config profile.module.lto=false --config profile.module.codegen-units=16 --config profile.module.strip=false \
    --target "$host" --target-dir "$dir" -- \
    "-Zpre-link-args=-Wl,--no-as-needed -lasan -Wl,--as-needed" "-Clink-arg=$dir/alloc.o" "-Clink-arg=-Wl,$wrapped"

envoy=${ENVOY_BIN:-$PWD/.tools/envoy/envoy/_bin/envoy}
printf '#!/bin/sh\nLD_PRELOAD=%q exec %q "$@"\n' "$dir/libshadow.so" "$envoy" >"$dir/envoy"
chmod +x "$dir/envoy"
rm -f "$dir"/report.*

# Memory that was freed is kept from use for a while: little of it, so that memory that is lost would show. Leaks are
# not looked for: what Envoy's own memory points to would be taken for one.
export ASAN_OPTIONS=verify_asan_link_order=0:detect_leaks=0:quarantine_size_mb=4:log_path=$dir/report
export TOLLGATE_BUILD=native TOLLGATE_MODULE=$dir/$host/module/libtollgate_native.so ENVOY_BIN=$dir/envoy
status=0
"$@" || status=$?
if compgen -G "$dir/report.*" >/dev/null; then
    cat "$dir"/report.* >&2
    echo "asan: an invalid access" >&2
    exit 1
fi
echo "asan: no invalid access" >&2
exit "$status"
