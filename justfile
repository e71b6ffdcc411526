# Tollgate's commands. `just` lists them; the line above a recipe is its help.

set shell := ["bash", "-euo", "pipefail", "-c"]

import 'setup.just'
import 'coordinator/packaging/dist.just'

# Recipes find the tools that `setup` installed first.
export PATH := tools / "bin" + ":" + env("PATH")
export CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUNNER := "wasm-bindgen-test-runner"

target := env("CARGO_TARGET_DIR", justfile_directory() / "target")
module := target / "tollgate_filter.wasm"
library := target / "libtollgate.so"

# Two sets of packages, always selected whole: cargo unifies features over the selected packages, so another
# selection would compile most dependencies again. The baselines of the benchmark exist in wasm only.
native := "--locked --workspace --exclude bench-empty-filter --exclude bench-header-filter"
wasip1 := "--locked -p tollgate-core -p tollgate-engine -p tollgate-proto -p tollgate-filter -p bench-empty-filter -p bench-header-filter --target wasm32-wasip1"

# The tests with `test = false`, which `--all-targets` leaves out; cargo ignores their names beside it.
apart := "--test sim --test it --test cluster --test compose --test attack"

# Tests of the dynamic module in CI: one at least for each thing in which it is not the wasm filter.
quick := "access_log address cel configuration::a_bad configuration::an_update examples::every_example final_cost fleet_bucket keys memory nudges outage_logs::a_cluster_that per_route redirects shape::waiting shutdown statistics two_filters wait_queues workers::four in_flight::ten_thousand"

[private]
default:
    @just --list --unsorted

# Install missing tools (wasm targets, protoc, Envoy, etcd, Node, wasm-bindgen, cargo-deny, cargo-deb, Schemathesis, grpcio, Chromium, Selenium, promtool, libfaketime, kubectl, umoci, skopeo, mandoc); safe to repeat
setup: _setup-packages _setup-wasm-bindgen _setup-packaging

# The tools that need not be compiled.
_setup-packages: _setup-system _setup-jq _setup-protoc _setup-targets _setup-envoy _setup-etcd _setup-node _setup-deny _setup-schemathesis _setup-doorman-client _setup-chromium _setup-selenium _setup-promtool _setup-faketime _setup-kubectl _setup-kubernetes-validate

# Build the filter (target/tollgate_filter.wasm), the coordinator (target/debug/tollgate) and the rest
build: _setup-protoc && (_library "debug")
    cargo build {{ native }} --bins --lib
    cargo build {{ wasip1 }} --profile filter
    {{ target }}/debug/tollgate-prune {{ target }}/wasm32-wasip1/filter/tollgate_filter.wasm {{ module }}

# Puts the dynamic module where Envoy looks for it; an Envoy that has loaded the one before keeps that.
_library PROFILE:
    cp {{ target / PROFILE }}/libtollgate_native.so {{ library }}.new
    mv {{ library }}.new {{ library }}

# Build the filter as a dynamic module of Envoy's, optimised (target/libtollgate.so)
native: && (_library "module")
    cargo build --locked -p tollgate-native -p bench-empty-module --profile module

# Builds the tests of real processes, which `verify` runs while it compiles other things.
_build-tests:
    cargo test {{ native }} --no-run --test it --test cluster --test compose

# Run two real Envoys, a coordinator and three tenants for 20 seconds, with a live table
[positional-arguments]
demo *ARGS: _setup-system _setup-targets _setup-envoy
    # Builds only the demo's parts, without etcd and OTLP, in a profile that compiles fast.
    cargo build --locked --profile demo -p tollgate-cli -p tollgate-prune -p tollgate-tests --no-default-features --bin tollgate --bin tollgate-prune --bin demo
    cargo build --locked -p tollgate-filter --target wasm32-wasip1 --profile filter
    {{ target }}/demo/tollgate-prune {{ target }}/wasm32-wasip1/filter/tollgate_filter.wasm {{ module }}
    {{ target }}/demo/demo "$@"

# Run all of CI's checks and tests without changing files; the last line sums up
[no-exit-message]
verify:
    @tests/run.sh checks tests

# Run all tests, without the lints
[no-exit-message]
test:
    @tests/run.sh tests

# Run unit, property and doc tests, natively
test-native:
    cargo test {{ native }} --no-fail-fast

# Run the tests of core, engine, protocol and filter in a wasm VM (wasip1)
test-wasip1:
    cargo test {{ wasip1 }} --no-fail-fast

# Run the tests of the core's laws and of the playground under wasm-bindgen in Node, and the playground's in Chromium
test-wasm-bindgen:
    #!/usr/bin/env bash
    set -euo pipefail
    cargo test --locked -p tollgate-core -p tollgate-web --target wasm32-unknown-unknown --test laws_wasm --test api
    if command -v chromedriver >/dev/null; then
        CHROMEDRIVER=$(command -v chromedriver) WASM_BINDGEN_USE_BROWSER=1 \
            cargo test --locked -p tollgate-core -p tollgate-web --target wasm32-unknown-unknown --test api
    else
        echo "SKIPPED: there is no chromedriver, so the playground was not tested in Chromium" >&2
        echo "test result: ok. 0 passed; 0 failed; 1 ignored"
    fi

# Run all tests in wasm VMs: test-wasip1 and test-wasm-bindgen
test-wasm: test-wasip1 test-wasm-bindgen

# Simulate fleets on a virtual clock: 400 seeds, 200 with other units, 100 by usage, 150 trees, 50 by usage. SEED: that one of each; --seeds N, or 10..20: so many of each; --soak HOURS: one fleet for so long, whose tables must not grow
[positional-arguments]
sim *ARGS:
    #!/usr/bin/env bash
    set -euo pipefail
    case "${1:-}" in
        "") set -- ;;
        --seeds) export TOLLGATE_SEEDS=${2:?how many seeds, or which, as 10..20}; set -- ;;
        --soak) export TOLLGATE_SOAK_HOURS=${2:?how many hours}; set -- stay_flat --nocapture ;;
        -*) echo "sim: unknown option $1: SEED, --seeds N or --soak HOURS" >&2; exit 2 ;;
        *) export TOLLGATE_SEED=$1; set -- the_laws_hold --nocapture ;;
    esac
    cargo test {{ native }} --test sim -- "$@"

# Make the playground, one HTML file that a browser opens without a server: target/playground/index.html
playground: _setup-targets _setup-wasm-bindgen
    cargo build --locked -p tollgate-web --lib --profile page --target wasm32-unknown-unknown
    wasm-bindgen --target no-modules --no-typescript --remove-name-section --remove-producers-section --out-dir {{ target }}/playground/parts {{ target }}/wasm32-unknown-unknown/page/tollgate_web.wasm
    python3 wasm/web/page/bundle.py {{ target }}/playground/parts/tollgate_web.js {{ target }}/playground/parts/tollgate_web_bg.wasm coordinator/admin/src/page/style.css {{ target }}/playground/index.html

# Play the scenario tests/scenarios/NAME.yaml in a release build, with `tollgate simulate`: figures, and with --report DIR a report
[positional-arguments]
simulate NAME *ARGS: _setup-protoc
    cargo build {{ native }} --release --bin tollgate
    name=$1; shift; {{ target }}/release/tollgate simulate "tests/scenarios/$name.yaml" "$@"

# Play Doorman's seven scenarios with SEEDS seeds each in a release build: figures of docs/benchmarks.md
[positional-arguments]
simulate-doorman SEEDS="20": _setup-protoc _setup-jq
    cargo build {{ native }} --release --bin tollgate
    tests/simulate-doorman.sh {{ target }}/release/tollgate "$@"

# Play all scenarios but the large ones (zipf, scale), or those named, with each of five algorithms in a release build: figures of docs/benchmarks.md
[positional-arguments]
compare-algorithms *NAMES: _setup-protoc _setup-jq
    cargo build {{ native }} --release --bin tollgate
    tests/compare-algorithms.sh {{ target }}/release/tollgate "$@"

# Test real Envoys with real coordinators; NAME selects tests. Inconclusive tests are repeated
e2e NAME="": build
    tests/conclusive.sh cargo test {{ native }} --no-fail-fast --test it -- --test-threads=1 {{ NAME }}

# Test real Envoys with the dynamic module instead of the wasm filter; NAME selects tests, `quick` those that CI runs
e2e-native NAME="": build
    TOLLGATE_BUILD=native tests/conclusive.sh cargo test {{ native }} --no-fail-fast --test it -- --test-threads=1 {{ if NAME == "quick" { quick } else { NAME } }}

# Test another Envoy (1.36.4, 1.37.0, 1.39.3) with the wasm filter; NAME selects tests, `quick` those that CI runs of the dynamic module
e2e-envoy VERSION NAME="quick": (_setup-another-envoy VERSION) build
    ENVOY_BIN={{ tools }}/envoy-{{ VERSION }}/envoy/_bin/envoy tests/conclusive.sh cargo test {{ native }} --no-fail-fast --test it -- --test-threads=1 {{ if NAME == "quick" { quick } else { NAME } }}

# Run the dynamic module's tests under valgrind: no invalid access, and no memory lost
memcheck:
    command -v valgrind >/dev/null || { echo "memcheck: no valgrind: install it (Debian's name)" >&2; exit 1; }
    CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER="valgrind -q --suppressions={{ justfile_directory() }}/filter/native/memcheck.supp --leak-check=full --show-leak-kinds=definite --errors-for-leak-kinds=definite --error-exitcode=9" cargo test --locked -p tollgate-native -- --test-threads=1

# Test a real coordinator's admin API against its OpenAPI description, for SECONDS
test-api SECONDS="30":
    #!/usr/bin/env bash
    set -euo pipefail
    if [ -d {{ tools }}/schemathesis ]; then
        python3 tests/api.py {{ target }}/debug/tollgate {{ tools }}/schemathesis {{ SECONDS }}
    else
        echo "SKIPPED: Schemathesis is not installed, so the admin API was not tested against its OpenAPI description" >&2
        echo "test result: ok. 0 passed; 0 failed; 1 ignored"
    fi

# Fuzz TARGET (configuration, request, records, answers, nudges) of the filter with libFuzzer, for SECONDS
fuzz TARGET SECONDS="60":
    #!/usr/bin/env bash
    set -euo pipefail
    command -v c++ >/dev/null || { echo "fuzz: no C++ compiler, which libFuzzer needs: install g++ (Debian's name)" >&2; exit 1; }
    host=$(rustc -vV | awk '/^host:/ {print $2}')
    # The flags of cargo-fuzz, without the sanitizers, which the stable compiler does not have.
    export RUSTFLAGS="--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares"
    cargo build --locked --release --manifest-path filter/fuzz/Cargo.toml --target "$host" --target-dir {{ target }}/fuzz --bin {{ quote(TARGET) }}
    found={{ target }}/fuzz/corpus/{{ quote(TARGET) }}
    mkdir -p "$found"
    # New inputs go into the first folder; a crash is written beside it, with instructions to repeat it.
    {{ target }}/fuzz/$host/release/{{ TARGET }} -max_total_time={{ SECONDS }} -max_len=4096 -print_final_stats=1 -artifact_prefix="$found-" "$found" filter/fuzz/corpus/{{ TARGET }}

# Test the playground's page in a real Chromium, opened as a file, and photograph it into target/screenshots
test-playground: playground
    #!/usr/bin/env bash
    set -euo pipefail
    skip() { echo "SKIPPED: $1, so the playground's page was not tested" >&2; echo "test result: ok. 0 passed; 0 failed; 1 ignored"; exit; }
    selenium={{ tools }}/selenium
    command -v chromedriver >/dev/null && { command -v chromium || command -v google-chrome; } >/dev/null || skip "there is no Chromium with chromedriver"
    PYTHONPATH=$selenium python3 -c 'import selenium' 2>/dev/null || skip "Selenium is not installed"
    python3 tests/browser/playground.py $selenium {{ target }}/playground/index.html {{ target }}/screenshots

# Test a real coordinator with a Doorman client that grpcio generates from Doorman's .proto file
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

# Test the coordinator's pages and the reports of simulations in a real Chromium, and photograph them into target/screenshots; NAME selects tests of the pages, without the reports
test-browser NAME="":
    #!/usr/bin/env bash
    set -euo pipefail
    skip() { echo "SKIPPED: $1, so the coordinator's pages were not tested" >&2; echo "test result: ok. 0 passed; 0 failed; 1 ignored"; exit; }
    selenium={{ tools }}/selenium grpcio={{ tools }}/doorman-client
    command -v chromedriver >/dev/null && { command -v chromium || command -v google-chrome; } >/dev/null || skip "there is no Chromium with chromedriver"
    PYTHONPATH=$selenium python3 -c 'import selenium' 2>/dev/null || skip "Selenium is not installed"
    [ -n {{ quote(NAME) }} ] || python3 tests/browser/report.py {{ target }}/debug/tollgate $selenium tests/scenarios/faults.yaml {{ target }}/screenshots
    PYTHONPATH=$grpcio python3 -c 'import grpc, grpc_tools.protoc' 2>/dev/null || skip "grpcio is not installed"
    python3 tests/browser {{ target }}/debug/tollgate $selenium $grpcio wasm/proto/proto/doorman/doorman.proto {{ target }}/screenshots {{ quote(NAME) }}

# Test clusters of real coordinators and Envoys under injected faults: SEEDS runs (50, or 10..20), or SEED alone. Inconclusive tests are repeated
test-cluster SEEDS="50" SEED="": build
    TOLLGATE_SEEDS={{ quote(SEEDS) }} TOLLGATE_SEED={{ quote(SEED) }} tests/conclusive.sh cargo test {{ native }} --no-fail-fast --test cluster -- --test-threads=2 {{ if SEED == "" { "" } else { "the_laws_hold" } }}

# Test the docker-compose demos of envoy/demo; images that cannot be pulled are built
test-compose NAME="":
    #!/usr/bin/env bash
    set -euo pipefail
    skip() { echo "SKIPPED: $1, so the demos of envoy/demo were not started" >&2; echo "test result: ok. 0 passed; 0 failed; 3 ignored"; exit; }
    docker info >/dev/null 2>&1 && { docker compose version || docker-compose version; } >/dev/null 2>&1 || skip "Docker with Compose does not run here"
    envoy/demo/images/stand-ins.sh debug || { [ $? = 75 ] && skip "images can be neither pulled nor built here"; exit 1; }
    tests/conclusive.sh cargo test {{ native }} --no-fail-fast --test compose -- --test-threads=1 {{ NAME }}

# Test the alerts of envoy/prometheus with promtool, on artificial series
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

# Test the manifests of envoy/kubernetes: schemas, references, and each overlay played with a real Envoy; NAME selects tests
test-kubernetes NAME="":
    #!/usr/bin/env bash
    set -euo pipefail
    skip() { echo "SKIPPED: $1, so the manifests of envoy/kubernetes were not tested" >&2; echo "test result: ok. 0 passed; 0 failed; 1 ignored"; exit; }
    [[ "$(kubectl version --client 2>/dev/null)" == *"Kustomize Version: v5"* ]] || skip "there is no kubectl with Kustomize 5"
    export PYTHONPATH={{ tools }}/kubernetes-validate PYTHONDONTWRITEBYTECODE=1
    python3 -c 'import kubernetes_validate' 2>/dev/null || skip "kubernetes-validate is not installed"
    envoy=${ENVOY_BIN:-{{ tools }}/envoy/envoy/_bin/envoy}
    [ -x "$envoy" ] || envoy=$(command -v envoy)
    python3 tests/kubernetes {{ target }}/debug/tollgate "$envoy" {{ module }} {{ library }} {{ quote(NAME) }}

# Generate the committed Rust code of the .proto files
generate:
    cargo build {{ native }} --bin tollgate-generate
    {{ target }}/debug/tollgate-generate

# Check formatting, generated code, licences, sources, lints and documentation; changes nothing
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
    cargo clippy --locked -p tollgate-sim -p tollgate-web --lib --test api --target wasm32-unknown-unknown -- -D warnings

[private]
lint-doc $RUSTDOCFLAGS="-D warnings":
    cargo doc {{ native }} --no-deps --document-private-items

# Format, and apply clippy's automatic fixes
fix:
    cargo fmt --all
    cargo clippy {{ native }} --all-targets --fix --allow-dirty --allow-staged
    cargo clippy {{ native }} {{ apart }} --fix --allow-dirty --allow-staged

# Measure nanoseconds per decision: buckets, token caches, fair shares; threads that draw on one bucket (criterion)
[positional-arguments]
bench *ARGS:
    cargo bench --locked -p tollgate-core --bench decisions -- "$@"
    cargo bench --locked -p tollgate-native --bench shared_bucket -- "$@"

# Measure Envoy's CPU per request, with Tollgate and with other rate limiters, in one run; --latency: p50 and p99 at a fixed rate
[positional-arguments]
bench-proxy *ARGS: _setup-system _setup-targets _setup-envoy build native
    cargo build {{ native }} --release --bin tollgate --bin bench-proxy
    {{ target }}/release/bench-proxy "$@"

# Measure a site with many rare tenants, all within their limits: refused, latency, memory, the coordinator's share; figures of docs/benchmarks.md
[positional-arguments]
bench-visitors *ARGS: _setup-system _setup-targets _setup-envoy build native
    cargo build {{ native }} --release --bin tollgate --bin bench-visitors
    {{ target }}/release/bench-visitors "$@"

# Measure refreshes per second of a coordinator on one core: 10 to 100 000 clients, and bulk calls; --cluster: three with three shards; --decisions: Envoy's rate limit service, saturated and at fixed rates
[positional-arguments]
bench-coordinator *ARGS: _setup-protoc _setup-etcd
    cargo build {{ native }} --release --bin tollgate --bin bench-coordinator
    {{ target }}/release/bench-coordinator "$@"

# Measure the fairness of waiting in simulation: gap between tenants, delay of a divided capacity; ARGS: gap or delay, and seeds
[positional-arguments]
bench-fairness *ARGS:
    cargo bench --locked -p tollgate-tests --bench fairness -- "$@"

# Play Pulsar's and Hermes' own algorithms on the demand of simulated fleets, beside those of a limit; NAMES are scenarios, each with the seconds of a round: doorman-1=8
[positional-arguments]
bench-originals *NAMES: _setup-protoc
    cargo build {{ native }} --release --bin tollgate
    tests/originals.sh {{ target }}/release/tollgate {{ target }}/originals "$@"

# Model a large fleet from measured unit costs, and compare a simulated one: WHICH is units, model or check (minutes, gigabytes) of a SCENARIO
[positional-arguments]
bench-scale WHICH="model" *SCENARIO:
    cargo bench --locked -p tollgate-tests --bench scale -- "$@"

# Attack a coordinator on loopback (slow readers, held connections), and measure good clients; NAMES select attacks
[positional-arguments]
attack *ARGS: build
    cargo test {{ native }} --test attack -- "$@"

# Test the tests: plant defects (mutants) in CRATE, core or engine or both, and run its own tests; PART 0/14 takes every fourteenth
mutants CRATE="both" PART="0/14": _setup-mutants
    #!/usr/bin/env bash
    set -euo pipefail
    case {{ quote(CRATE) }} in
    both) packages="-p tollgate-core -p tollgate-engine" ;;
    core | engine) packages="-p tollgate-{{ CRATE }}" ;;
    *) echo "mutants: CRATE is core, engine or both, not {{ CRATE }}" >&2; exit 2 ;;
    esac
    # Dependencies are compiled once for all mutants and runs, in a folder of their own.
    export CARGO_TARGET_DIR={{ target }}/mutants/build
    # Lists of the mutants that were caught, missed, or could not be compiled: target/mutants/mutants.out.
    cargo mutants $packages --no-shuffle --shard {{ quote(PART) }} --sharding round-robin --minimum-test-timeout 60 -o {{ target }}/mutants

# Run real Envoys and a cluster for HOURS under changing tenants and faults; report memory and latency in target/soak
[positional-arguments]
soak *ARGS: _setup-etcd build
    cargo build {{ native }} --release --bin tollgate --bin soak
    {{ target }}/release/soak "$@"

# Run the soak for HOURS with the dynamic module under AddressSanitizer
[positional-arguments]
soak-asan *ARGS: _setup-etcd _setup-envoy build
    cargo build {{ native }} --release --bin tollgate --bin soak
    tests/asan/soak.sh {{ target }} {{ target }}/release/soak "$@"

# Count the operations of the wasm filter and its baselines by callback, in an interpreter, or by condition and key (`rules`); `functions` also says in which functions
[positional-arguments]
bench-instructions *ARGS: build
    # Counts do not depend on the profile, and this one is compiled already.
    cargo bench {{ native }} --profile dev --bench instructions -- "$@"

# Measure a coordinator's start and memory with 10 000 groups and 100 000 attachments
bench-load:
    cargo test {{ native }} --release --test command -- --nocapture load::
