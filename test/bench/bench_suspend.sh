#!/bin/bash
# Suspend and resume of a program with N GiB on the device; beside it the driver's own checkpoint functions on the same
# program without the preload. SIZES_MIB, ROUNDS (3).

set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=test/bench/device.sh
. "$here/device.sh"
# shellcheck source=test/bench/holder.sh
. "$here/holder.sh"
trap 'rm -rf "$scratch"' EXIT

rounds=${ROUNDS:-3}
if ((gpu)); then
    sizes=${SIZES_MIB:-1024 8192 40960}
else
    sizes=${SIZES_MIB:-256 1024}
fi

row() { # WHO MIB OFF ON
    awk -v who="$1" -v mib="$2" -v off="$3" -v on="$4" 'BEGIN {
        gb = mib * 1048576 / 1e9
        printf "%-10s %8.2f %10.4f %8.2f %10.4f %8.2f\n", who, mib / 1024, off, gb / off, on, gb / on }'
}

# Whether the copy fits into host memory, and the data on the device.
fits() {
    local host on_device

    host=$(awk '/^MemAvailable/ { print int($2 / 1024) }' /proc/meminfo)
    if ((gpu)); then
        on_device=$(nvidia-smi --query-gpu=memory.free --format=csv,noheader,nounits | head -n 1)
    else
        on_device=$((host / 2)) # it is the host's
    fi
    if (($1 + 1024 > host || $1 + 1024 > on_device)); then
        echo "$(($1 / 1024)) GiB: skipped, $host MiB of host memory and $on_device MiB on the device are free"
        return 1
    fi
}

echo "Memory filled by a kernel, medians of $rounds rounds, on: $device"
echo "cudackpt: time of the command. driver: time of cuCheckpointProcessLock and Checkpoint, Restore and Unlock."
printf '%-10s %8s %10s %8s %10s %8s\n' who GiB 'suspend s' GB/s 'resume s' GB/s
for mib in $sizes; do
    fits "$mib" || continue
    holder_start "$preload" memory "$mib"
    toggle "$rounds"
    holder_end
    row cudackpt "$mib" "$off" "$on"

    holder_start '' memory "$mib"
    status=0
    "$build/bench/bench_peer" "$holder" "$rounds" >"$scratch/peer" || status=$?
    case $status in
    0)
        holder_check
        row driver "$mib" "$(awk '{ print $1 }' "$scratch/peer" | median)" "$(awk '{ print $2 }' "$scratch/peer" | median)"
        ;;
    77) echo "driver     skipped: $(tail -n 1 "$scratch/peer")" ;;
    *) holder_fails "bench_peer ends with status $status" ;;
    esac
    holder_end
done
