#!/bin/bash
# What the preload adds to calls of the driver: the same program with and without it, in turn. PAIRS (5).

set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=test/bench/device.sh
. "$here/device.sh"
trap 'rm -rf "$scratch"' EXIT

pairs=${PAIRS:-5}
echo "Calls with the preload and without, ns of CPU time, medians of $pairs runs each, on: $device"
printf '%-22s %7s %10s %10s %8s %6s\n' call threads without with added ratio
for threads in 1 8; do
    for ((pair = 0; pair < pairs; pair++)); do
        "$build/bench/bench_wrapper" "$threads" | sed 's/^/without /'
        LD_PRELOAD=$preload "$build/bench/bench_wrapper" "$threads" | sed 's/^/with /'
    done >"$scratch/runs"
    for call in $(awk '$1 == "with" && !seen[$2]++ { print $2 }' "$scratch/runs"); do
        without=$(awk -v call="$call" '$1 == "without" && $2 == call { print $3 }' "$scratch/runs" | median)
        with=$(awk -v call="$call" '$1 == "with" && $2 == call { print $3 }' "$scratch/runs" | median)
        awk -v call="$call" -v threads="$threads" -v a="$without" -v b="$with" \
            'BEGIN { printf "%-22s %7d %10.1f %10.1f %+8.1f %6.2f\n", call, threads, a, b, b - a, b / a }'
    done
done
