#!/usr/bin/env bash
# Plays Doorman's seven scenarios: `simulate-doorman.sh TOLLGATE [SEEDS]`. Prints one table, in Markdown: Doorman's
# figures, measured once, beside ours.
set -euo pipefail

tollgate=$1
seeds=${2:-20}
folder=$(dirname "$0")/scenarios

# Of Doorman's own simulation: handed out, samples over capacity, worst, leases lost. First leases took 65 s in all.
doorman=(
    '1: one coordinator, 5 clients|99.3 %|0|–|0'
    '2: no master for 20 s|99.2 %|0|–|0'
    '3: no master for 70 s|63.2 %|0|–|5'
    '4: one region below the root|97.7 %|0|–|0'
    '5: a tree of 13, 45 clients|97.14 %|0|–|0'
    '6: and two that want 1000|96.2 %|0.2|100.3 %|0'
    '7: and an hour of mishaps|94.9 %|16.3|122 %|63'
)

echo '| scenario | handed out of min(capacity, wants): Doorman | Tollgate (least, most) | samples over capacity: Doorman | Tollgate | worst: Doorman | Tollgate | leases lost: Doorman | Tollgate | first lease: Doorman | Tollgate, longest | messages, Tollgate |'
echo '|---|---|---|---|---|---|---|---|---|---|---|---|'
for number in "${!doorman[@]}"; do
    "$tollgate" simulate "$folder/doorman-$((number + 1)).yaml" --seeds "$seeds" --json |
        jq -r --arg doorman "${doorman[number]}" '
            def percent: . * 10000 | round / 100 | "\(.) %";
            def tenths: . * 10 | round / 10 | tostring;
            def mean: add / length;
            ($doorman | split("|")) as [$name, $handed_out, $over, $worst, $lost]
            | [.runs[].figures] as $runs
            | [$runs[].of_attainable] as $parts
            | [ $name, $handed_out,
                "\($parts | mean | percent) (\($parts | min | percent), \($parts | max | percent))",
                $over, ([$runs[].over_capacity] | mean | tenths),
                $worst, ([$runs[].worst] | max | percent),
                $lost, ([$runs[].leases_lost] | mean | tenths),
                "65 s", ([$runs[].first_lease] | max * 1000 | round | "\(.) ms"),
                ([$runs[].messages] | mean | round | tostring) ]
            | "| " + join(" | ") + " |"'
done
