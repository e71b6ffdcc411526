#!/usr/bin/env bash
# Runs tests, and repeats inconclusive ones: they failed and reported that they, or processes they had started,
# had too little time on a core. A test that fails in any other way, or stays inconclusive, has failed.
#
# usage: tests/conclusive.sh COMMAND...     a `cargo test` command of one test program that accepts test names
set -uo pipefail

# Most repetitions of an inconclusive test.
repeats=3

output=$(mktemp)
trap 'rm -f "$output"' EXIT

# Runs a command, and renames its result line: tests/run.sh is to count only the last line of this script.
run() {
    "$@" 2>&1 | sed -u 's/^test result:/this try:/' | tee "$output"
    return "${PIPESTATUS[0]}"
}

# figure WORD: prints the number before WORD in the last result line.
figure() { awk -v word="$1" '/^this try:/ { for (i = 2; i <= NF; i++) if ($i ~ "^" word) n = $(i - 1) } END { print n + 0 }' "$output"; }

# Prints the tests whose last panic was inconclusive, each with its message.
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

# Prints the names of the inconclusive tests.
inconclusive() { figures | awk '{ sub(/:$/, "", $2); print $2 }'; }

run "$@"
status=$?
# A test that finds that it has nothing to test, such as with another build, says so in a line and returns.
# Behind `failures:` is output of tests that failed.
away=$(awk '/^failures:$/ { exit } /^SKIPPED: / { n++ } END { print n + 0 }' "$output")
passed=$(($(figure passed) - away)) failed=$(figure failed) skipped=$(($(figure ignored) + away))
mapfile -t names < <(inconclusive)
first=${#names[@]}
if [ "$status" = 0 ] || [ "$first" = 0 ] || [ "$first" -gt "$failed" ]; then
    echo "test result: $passed passed; $failed failed; $skipped ignored"
    exit "$status"
fi

# Other failures are final; the inconclusive tests are repeated.
broken=$((failed - first)) later=0
for ((try = 1; try <= repeats && ${#names[@]} > 0; try++)); do
    printf '\n%d INCONCLUSIVE; repetition %d of %d:\n' "${#names[@]}" "$try" "$repeats"
    figures
    run "$@" --exact "${names[@]}"
    ran=$(($(figure passed) + $(figure failed)))
    if [ "$ran" != "${#names[@]}" ]; then
        echo "only $ran of ${#names[@]} repeated tests ran" >&2
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
