#!/usr/bin/env bash
# Runs tests, and once more those that were inconclusive: that failed because they found no fair conditions (they, or what
# they had started, had no core), and said so. A test that fails in any other way has failed. One that stays inconclusive has
# failed as well.
#
# usage: tests/conclusive.sh COMMAND...     a `cargo test` of one test program, to which names of tests can be added
set -uo pipefail

# How often an inconclusive test is repeated.
repeats=3

output=$(mktemp)
trap 'rm -f "$output"' EXIT

# One line of results for all runs, in the form of cargo's, which tests/run.sh adds up.
run() {
    "$@" 2>&1 | sed -u 's/^test result:/this try:/' | tee "$output"
    return "${PIPESTATUS[0]}"
}

# The figure before WORD in the last line of results.
figure() { awk -v word="$1" '/^this try:/ { for (i = 2; i <= NF; i++) if ($i ~ "^" word) n = $(i - 1) } END { print n + 0 }' "$output"; }

# The tests of which the last panic says that they were inconclusive, each with what it said.
figures() {
    awk '/^---- .* stdout ----$/ { name = $2; order[++count] = name }
        /^failures:$/ { name = "" }
        name != "" && last { said[name] = /^INCONCLUSIVE:/ ? $0 : "" }
        { last = / panicked at .*:$/ }
        END {
            for (i = 1; i <= count; i++) if (said[order[i]] != "") {
                sub(/^INCONCLUSIVE: */, "", said[order[i]])
                print "INCONCLUSIVE: " order[i] ": " said[order[i]]
            }
        }' "$output"
}

# Their names.
inconclusive() { figures | awk '{ sub(/:$/, "", $2); print $2 }'; }

run "$@"
status=$?
passed=$(figure passed) failed=$(figure failed) skipped=$(figure ignored)
mapfile -t names < <(inconclusive)
first=${#names[@]}
if [ "$status" = 0 ] || [ "$first" = 0 ] || [ "$first" -gt "$failed" ]; then
    echo "test result: $passed passed; $failed failed; $skipped ignored"
    exit "$status"
fi

# What failed by itself has failed; the rest is tried until it is known.
broken=$((failed - first)) later=0
for ((try = 1; try <= repeats && ${#names[@]} > 0; try++)); do
    printf '\n%d INCONCLUSIVE; repeated, %d of %d times:\n' "${#names[@]}" "$try" "$repeats"
    figures
    run "$@" --exact "${names[@]}"
    ran=$(($(figure passed) + $(figure failed)))
    if [ "$ran" != "${#names[@]}" ]; then
        echo "of ${#names[@]} repeated tests $ran ran" >&2
        break
    fi
    ((later += $(figure passed)))
    now_failed=$(figure failed)
    mapfile -t names < <(inconclusive)
    ((broken += now_failed - ${#names[@]}))
done

printf '\nINCONCLUSIVE AT FIRST: %d, of which %d passed later and %d stayed so\n' "$first" "$later" "${#names[@]}"
if [ "${#names[@]}" -gt 0 ]; then figures; fi
failed=$((broken + ${#names[@]}))
echo "test result: $((passed + later)) passed; $failed failed; $skipped ignored"
[ "$failed" = 0 ]
