#!/usr/bin/env bash
# Runs tests, and those that failed a second time: whether a test on the real clock passes hangs, on a busy machine,
# on what else runs there. Who fails twice has failed; who passes at the second try is named, loudly.
#
# usage: tests/twice.sh COMMAND...     a `cargo test` of one test program, to which names of tests can be added
set -uo pipefail

output=$(mktemp)
trap 'rm -f "$output"' EXIT

# The figure before WORD in the last line of results.
figure() { awk -v word="$1" '/^first try:/ { for (i = 2; i <= NF; i++) if ($i ~ "^" word) n = $(i - 1) } END { print n + 0 }' "$output"; }

# One line of results for both runs, in the form of cargo's, which tests/run.sh adds up.
"$@" 2>&1 | sed -u 's/^test result:/first try:/' | tee "$output"
status=${PIPESTATUS[0]}
passed=$(figure passed) failed=$(figure failed) skipped=$(figure ignored)
# Of each failed test its line; a program that did not come that far has none.
mapfile -t names < <(awk '/^test .* FAILED$/ { print $2 }' "$output")
if [ "$status" = 0 ] || [ "$failed" = 0 ] || [ "${#names[@]}" != "$failed" ]; then
    echo "test result: $passed passed; $failed failed; $skipped ignored"
    exit "$status"
fi

printf '\n%d FAILED AT THE FIRST TRY; once more: %s\n' "$failed" "${names[*]}"
"$@" --exact "${names[@]}" 2>&1 | sed -u 's/^test result:/first try:/' | tee "$output"
status=${PIPESTATUS[0]}
again=$(figure passed)
printf '\nPASSED ONLY AT THE SECOND TRY: %d of %d\n' "$again" "$failed"
echo "test result: $((passed + again)) passed; $((failed - again)) failed; $skipped ignored"
exit "$status"
