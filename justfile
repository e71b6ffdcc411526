# Tollgate's commands. `just` lists them; the line above a recipe is its help.

set shell := ["bash", "-euo", "pipefail", "-c"]

import 'setup.just'

# The tools that `setup` installed come first, and every recipe finds them by name.
export PATH := tools / "bin" + ":" + env("PATH")
export CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUNNER := "wasm-bindgen-test-runner"

target := env("CARGO_TARGET_DIR", justfile_directory() / "target")
module := target / "tollgate_filter.wasm"

# Two sets of packages, always selected whole: cargo unifies features over what is selected, so any other
# selection would compile most dependencies again. The baselines of the benchmark exist in wasm only.
native := "--locked --workspace --exclude bench-empty-filter --exclude bench-header-filter"
wasip1 := "--locked -p tollgate-core -p tollgate-engine -p tollgate-proto -p tollgate-filter -p bench-empty-filter -p bench-header-filter --target wasm32-wasip1"

# The tests with `test = false`: `--all-targets` leaves them out, and beside it cargo ignores their names.
apart := "--test sim --test it --test cluster --test compose --test attack"

[private]
default:
    @just --list --unsorted

# Install what is missing (wasm targets, protoc, Envoy, etcd, Node, wasm-bindgen, cargo-deny, Schemathesis, grpcio, promtool, libfaketime); safe to repeat
setup: _setup-system _setup-protoc _setup-targets _setup-envoy _setup-etcd _setup-node _setup-wasm-bindgen _setup-deny _setup-schemathesis _setup-doorman-client _setup-promtool _setup-faketime

# Build the filter (target/tollgate_filter.wasm), the coordinator (target/debug/tollgate) and the rest
build: _setup-protoc
    cargo build {{ native }} --bins
    cargo build {{ wasip1 }} --profile filter
    {{ target }}/debug/tollgate-prune {{ target }}/wasm32-wasip1/filter/tollgate_filter.wasm {{ module }}

# Two real Envoys, a coordinator and three tenants for 20 seconds, with a live table
demo *ARGS: _setup-system _setup-targets _setup-envoy
    # Only the parts that it runs, without the clients of etcd and of trace collectors, in a profile that compiles fast.
    cargo build --locked --profile demo -p tollgate-cli -p tollgate-prune -p tollgate-tests --no-default-features --bin tollgate --bin tollgate-prune --bin demo
    cargo build --locked -p tollgate-filter --target wasm32-wasip1 --profile filter
    {{ target }}/demo/tollgate-prune {{ target }}/wasm32-wasip1/filter/tollgate_filter.wasm {{ module }}
    {{ target }}/demo/demo {{ ARGS }}

# Everything that CI checks, changing nothing; the last line sums up
[no-exit-message]
verify:
    @tests/run.sh checks tests

# All tests, without the lints
[no-exit-message]
test:
    @tests/run.sh tests

# Unit, property and doc tests, natively
test-native:
    cargo test {{ native }} --no-fail-fast

# The tests of what runs in Envoy, in a wasm VM (wasip1): core, engine, protocol and filter
test-wasip1:
    cargo test {{ wasip1 }} --no-fail-fast

# The core's laws under wasm-bindgen in Node
test-wasm-bindgen:
    cargo test --locked -p tollgate-core --target wasm32-unknown-unknown --test laws_wasm

# Everything that runs in a wasm VM: test-wasip1 and test-wasm-bindgen
test-wasm: test-wasip1 test-wasm-bindgen

# Fleets on a virtual clock: 1000 seeds, 400 of other units than requests, 300 trees; or SEED alone of each kind; TOLLGATE_SEEDS=10000 tries as many of each
sim SEED="":
    TOLLGATE_SEED={{ quote(SEED) }} cargo test {{ native }} --test sim -- {{ if SEED == "" { "" } else { "the_laws_hold --nocapture" } }}

# Real Envoys against real coordinators; NAME picks tests. What is inconclusive is repeated
e2e NAME="": build
    tests/conclusive.sh cargo test {{ native }} --no-fail-fast --test it -- --test-threads=1 {{ NAME }}

# The admin API of the real coordinator against the description that it serves, for SECONDS
test-api SECONDS="30":
    #!/usr/bin/env bash
    set -euo pipefail
    if [ -d {{ tools }}/schemathesis ]; then
        python3 tests/api.py {{ target }}/debug/tollgate {{ tools }}/schemathesis {{ SECONDS }}
    else
        echo "SKIPPED: Schemathesis is not installed, so the admin API was not tested against its description" >&2
        echo "test result: ok. 0 passed; 0 failed; 1 ignored"
    fi

# Feed TARGET (configuration, request, records, answers) with whatever finds new ways through the filter, for SECONDS
fuzz TARGET SECONDS="60":
    #!/usr/bin/env bash
    set -euo pipefail
    command -v c++ >/dev/null || { echo "fuzz: missing: a C++ compiler (Debian's g++), which libFuzzer is compiled with" >&2; exit 1; }
    host=$(rustc -vV | awk '/^host:/ {print $2}')
    # What cargo-fuzz asks of the compiler, of which the stable one knows all but the sanitizers.
    export RUSTFLAGS="--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares"
    cargo build --locked --release --manifest-path filter/fuzz/Cargo.toml --target "$host" --target-dir {{ target }}/fuzz --bin {{ quote(TARGET) }}
    found={{ target }}/fuzz/corpus/{{ quote(TARGET) }}
    mkdir -p "$found"
    # What is found goes into the first folder; a crash is written beside it and says how to run it again.
    {{ target }}/fuzz/$host/release/{{ TARGET }} -max_total_time={{ SECONDS }} -max_len=4096 -print_final_stats=1 -artifact_prefix="$found-" "$found" filter/fuzz/corpus/{{ TARGET }}

# A client that is made out of Doorman's protocol by other tools than ours, against the real coordinator
test-doorman-client:
    #!/usr/bin/env bash
    set -euo pipefail
    packages={{ tools }}/doorman-client
    if PYTHONPATH=$packages python3 -c 'import grpc, grpc_tools.protoc' 2>/dev/null; then
        python3 tests/doorman_client.py {{ target }}/debug/tollgate $packages wasm/proto/proto/doorman/doorman.proto
    else
        echo "SKIPPED: grpcio is not installed, so no Doorman client was generated and tested" >&2
        echo "test result: ok. 0 passed; 0 failed; 1 ignored"
    fi

# Clusters of real coordinators and Envoys, of which parts are killed, stopped and cut off: SEEDS runs (50, or 10..20), or SEED alone. What is inconclusive is repeated
test-cluster SEEDS="50" SEED="": build
    TOLLGATE_SEEDS={{ quote(SEEDS) }} TOLLGATE_SEED={{ quote(SEED) }} tests/conclusive.sh cargo test {{ native }} --no-fail-fast --test cluster -- --test-threads=2 {{ if SEED == "" { "" } else { "the_laws_hold" } }}

# The docker-compose demos in envoy/demo, with images made here where none can be pulled
test-compose NAME="":
    #!/usr/bin/env bash
    set -euo pipefail
    skip() { echo "SKIPPED: $1, so the demos of envoy/demo were not started" >&2; echo "test result: ok. 0 passed; 0 failed; 3 ignored"; exit; }
    docker info >/dev/null 2>&1 && { docker compose version || docker-compose version; } >/dev/null 2>&1 || skip "Docker with Compose does not run here"
    envoy/demo/images/stand-ins.sh debug || { [ $? = 75 ] && skip "images can neither be pulled nor made here"; exit 1; }
    tests/conclusive.sh cargo test {{ native }} --no-fail-fast --test compose -- --test-threads=1 {{ NAME }}

# The alerts of envoy/prometheus, on made-up series
test-alerts:
    #!/usr/bin/env bash
    set -euo pipefail
    if command -v promtool >/dev/null; then
        promtool check rules envoy/prometheus/alerts.yml
        promtool test rules envoy/prometheus/alerts_test.yml
        echo "test result: ok. $(grep -c '^    name:' envoy/prometheus/alerts_test.yml) passed; 0 failed; 0 ignored"
    else
        echo "SKIPPED: there is no promtool, so the alerts were not tested" >&2
        echo "test result: ok. 0 passed; 0 failed; 1 ignored"
    fi

# Write the Rust code of the .proto files, which is committed
generate:
    cargo build {{ native }} --bin tollgate-generate
    {{ target }}/debug/tollgate-generate

# Formatting, generated code, licences and sources, lints, documentation; changes nothing
lint: lint-format lint-generated lint-deny lint-native lint-wasm lint-doc

[private]
lint-format:
    cargo fmt --all --check

[private]
lint-generated:
    cargo build {{ native }} --bin tollgate-generate
    {{ target }}/debug/tollgate-generate --check

[private]
lint-deny:
    cargo deny --locked check bans licenses sources

[private]
lint-native:
    cargo clippy {{ native }} --all-targets -- -D warnings
    cargo clippy {{ native }} {{ apart }} -- -D warnings

[private]
lint-wasm:
    cargo clippy {{ wasip1 }} --all-targets -- -D warnings
    cargo clippy --locked -p tollgate-core --lib --test laws_wasm --target wasm32-unknown-unknown -- -D warnings

[private]
lint-doc $RUSTDOCFLAGS="-D warnings":
    cargo doc {{ native }} --no-deps --document-private-items

# Format, and apply what clippy can mend by itself
fix:
    cargo fmt --all
    cargo clippy {{ native }} --all-targets --fix --allow-dirty --allow-staged
    cargo clippy {{ native }} {{ apart }} --fix --allow-dirty --allow-staged

# Decisions per nanosecond: buckets, slabs, fair shares (criterion)
bench *ARGS:
    cargo bench --locked -p tollgate-core --bench decisions -- {{ ARGS }}

# CPU that Envoy spends per request, with Tollgate and with its peers, in one run
bench-proxy *ARGS: _setup-system _setup-targets _setup-envoy build
    cargo build {{ native }} --release --bin tollgate --bin bench-proxy
    {{ target }}/release/bench-proxy {{ ARGS }}

# Refreshes per second of a coordinator that has one core: 10 to 100 000 clients, and bulk calls; --cluster: of three with three shards
bench-coordinator *ARGS: _setup-protoc _setup-etcd
    cargo build {{ native }} --release --bin tollgate --bin bench-coordinator
    {{ target }}/release/bench-coordinator {{ ARGS }}

# Attacks on a coordinator on loopback, and what good clients notice: slow readers, held connections. NAMES pick some
attack *ARGS: build
    cargo test {{ native }} --test attack -- {{ ARGS }}

# How long a coordinator takes to start with 10 000 groups and 100 000 attachments, and its memory
bench-load:
    cargo test {{ native }} --release --test command -- --nocapture load::
