#!/usr/bin/env bash
# Plays scenarios with the algorithms of a limit, and Pulsar's and Hermes' own on the same demand:
# `originals.sh TOLLGATE FOLDER [NAME=SECONDS...]`. Prints one table, in Markdown.
set -euo pipefail

tollgate=$1 folder=$2
shift 2
# The seconds are those between two refreshes of a lease.
(($#)) || set -- doorman-1=8 doorman-7=8 rolling-deploy=1
played=()
for named in "$@"; do
    name=${named%=*}
    for algorithm in fair_share usage_share max_rate; do
        "$tollgate" simulate "$(dirname "$0")/scenarios/$name.yaml" --algorithm "$algorithm" --report "$folder/$name/$algorithm" >/dev/null
    done
    played+=("$named=$folder/$name")
done
cargo bench --locked -p tollgate-tests --bench originals -- "${played[@]}"
