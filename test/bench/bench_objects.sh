#!/bin/bash
# How the times of suspend and resume grow with the number of objects. ROUNDS (3).

set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=test/bench/device.sh
. "$here/device.sh"
# shellcheck source=test/bench/holder.sh
. "$here/holder.sh"
trap 'rm -rf "$scratch"' EXIT

rounds=${ROUNDS:-3}
echo "Time over the number of objects, medians of $rounds rounds, on: $device"
printf '%-8s %8s %10s %10s %14s %14s\n' objects number 'suspend s' 'resume s' 'suspend us/ea' 'resume us/ea'
for case in events:1 events:1000 events:10000 events:100000 streams:1 streams:1000 streams:10000; do
    holder_start "$preload" "${case%:*}" "${case#*:}"
    toggle "$rounds"
    holder_end
    awk -v kind="${case%:*}" -v n="$held" -v off="$off" -v on="$on" 'BEGIN {
        printf "%-8s %8d %10.4f %10.4f %14.2f %14.2f\n", kind, n, off, on, off / n * 1e6, on / n * 1e6 }'
    ((held == ${case#*:})) || echo "         (the driver gave no more than $held)"
done
