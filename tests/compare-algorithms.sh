#!/usr/bin/env bash
# Plays scenarios with each algorithm: `compare-algorithms.sh TOLLGATE [NAME...]`. Prints one table, in Markdown.
set -euo pipefail

tollgate=$1
shift
folder=$(dirname "$0")/scenarios
if [ $# -eq 0 ]; then
    # Runs of zipf and scale take minutes; zipf-200 is the first in small.
    for file in "$folder"/*.yaml; do
        name=$(basename "$file" .yaml)
        [[ $name = zipf || $name = scale ]] || set -- "$@" "$name"
    done
fi

echo '| scenario | algorithm | handed out | fairness | samples over | overshoot | time to fair, mean | longest | messages |'
echo '|---|---|---|---|---|---|---|---|---|'
for name in "$@"; do
    "$tollgate" simulate "$folder/$name.yaml" --compare --json | jq -r --arg name "$name" '
        def percent: . * 10000 | round / 100 | "\(.) %";
        def seconds: if . == null then "–" else . * 10 | round / 10 | "\(.) s" end;
        .runs[] | . as $run | .figures
        | [ "`\($name)`", "`\($run.algorithm)`", (.of_attainable | percent),
            (if .fairness == null then "–" else .fairness * 1000 | round / 1000 | tostring end),
            "\(.over_capacity) of \(.samples)", ([.worst - 1, 0] | max | percent),
            (.time_to_fair | seconds),
            (if .unfair_at_end > 0 then "at least " else "" end) + (.longest_time_to_fair | seconds),
            (.messages | tostring) ]
        | "| " + join(" | ") + " |"'
done
