#!/usr/bin/env bash
# Tests the recipes of the justfile with fake programs: arguments arrive as they were given, and what a recipe
# needs of the system is no more than the documentation says.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
just=$(command -v just)

fail() { echo "tests/recipes.sh: $1" >&2; exit 1; }

# A program that writes down its arguments, one on each line, and the settings of the tests. The last one that a
# recipe runs is the one to which it hands its own.
cat >"$work/program" <<END
#!/usr/bin/env bash
printf '%s\n' "\$@" >"$work/arguments"
env | grep ^TOLLGATE_ | sort >"$work/settings" || true
END
chmod +x "$work/program"
mkdir -p "$work/bin" "$work/target/demo" "$work/target/release"
for name in bin/cargo target/demo/tollgate-prune target/demo/demo target/release/bench-{proxy,coordinator}; do
    ln -s "$work/program" "$work/$name"
done

given=("two words" "it's \"quoted\"" '$HOME' '')
for recipe in demo bench bench-proxy bench-coordinator bench-instructions attack; do
    PATH="$work/bin:$PATH" CARGO_TARGET_DIR="$work/target" "$just" --quiet --no-deps "$recipe" "${given[@]}"
    diff <(printf '%s\n' "${given[@]}") <(tail -n ${#given[@]} "$work/arguments") ||
        fail "\`just $recipe\` hands other arguments over than it was given"
done

# The simulator's forms: arguments, settings, what the tests are asked for.
sim() {
    local expected=$1 settings=$2
    shift 2
    PATH="$work/bin:$PATH" "$just" --quiet sim "$@"
    [ "$(sed '1,/^--$/d' "$work/arguments" | paste -sd' ')" = "$expected" ] && [ "$(paste -sd' ' "$work/settings")" = "$settings" ] ||
        fail "\`just sim $*\` does not run what it says"
}
sim "" ""
sim "the_laws_hold --nocapture" TOLLGATE_SEED=641 641
sim "" TOLLGATE_SEEDS=10..20 --seeds 10..20
sim "stay_flat --nocapture" TOLLGATE_SOAK_HOURS=24 --soak 24
for wrong in --seed "--seeds" "--soak"; do
    PATH="$work/bin:$PATH" "$just" --quiet sim "$wrong" 2>/dev/null && fail "\`just sim $wrong\` is taken for something"
done

# The demo's step for the system, where there is no more than a linker and Python.
mkdir "$work/newcomer"
for name in bash cc id; do
    ln -s "$(command -v "$name")" "$work/newcomer/$name"
done
# No link, and no shim: Python finds its packages beside the path by which it was called.
printf '#!/usr/bin/env bash\nexec %q "$@"\n' "$(python3 -c 'import sys; print(sys.executable)')" >"$work/newcomer/python3"
chmod +x "$work/newcomer/python3"
PATH="$work/newcomer" "$just" --quiet _setup-system >/dev/null || fail "the demo asks for more than a linker and pip"
