#!/bin/bash
# `make demo`: a server that counts on the device is taken off it and put back while it runs.

set -euo pipefail
here=$(cd "$(dirname "$0")/../bench" && pwd)
# shellcheck source=test/bench/device.sh
. "$here/device.sh"
here=$build/demo
server=''
trap '[[ -z $server ]] || kill "$server" 2>/dev/null; rm -rf "$scratch"' EXIT

fail() {
    echo
    echo "demo: FAILED: $*"
    exit 1
}

say() {
    printf '\n%s\n' "$*"
}

show() {
    printf '  $ %s\n' "$*"
    "$@" 2>&1 | sed 's/^/    /'
}

# ---- what is looked at from outside

descriptors() {
    local fd target

    for fd in /proc/"$server"/fd/*; do
        target=$(readlink "$fd" 2>/dev/null || true)
        case $target in
        /dev/nvidia* | "$FAKE_GPU_DIR"/*) echo "$target" ;;
        esac
    done
}

list_memory() {
    if ((gpu)); then
        nvidia-smi --query-compute-apps=pid,used_memory --format=csv,noheader,nounits | tr -d ,
    else
        "$build/fake/fake-smi" "$FAKE_GPU_DIR"
    fi
}

memory() {
    list_memory | awk -v pid="$server" '$1 == pid { print $2 }'
}

used() {
    if ((gpu)); then
        nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits | head -n 1
    else
        "$build/fake/fake-smi" "$FAKE_GPU_DIR" | awk '$1 == "device" { print $3; exit }'
    fi
}

look() {
    local mib count

    mib=$(memory)
    count=$(descriptors | wc -l)
    echo "  state:                            $("$tool" state "$server")"
    echo "  device memory of the process:     ${mib:-0} MiB (in use in all: $(used) MiB)"
    echo "  device files that it has open:    $count"
    echo "  threads:                          $(awk '/^Threads/ { print $2 }' "/proc/$server/status")"
    echo "  memory of the host (RSS):         $(awk '/^VmRSS/ { print int($2 / 1024) }' "/proc/$server/status") MiB"
}

# ---- the server and packets to it

ask() {
    echo >&"$packets"
}

# await SECONDS: sets number, or fails. A packet must be read at once: read would take one byte and lose the rest.
await() {
    number=$(timeout "$1" dd bs=64 count=1 status=none <&"$packets")
}

expect_number() {
    ask
    await 20 || fail "no answer from the server"
    ((number == $1)) || fail "the server answered $number, not $1"
    echo "  packet -> $number"
}

echo "Device: $device"
mkfifo "$scratch/in" "$scratch/out"
exec {input}<>"$scratch/in" {output}<>"$scratch/out"
LD_PRELOAD=$preload "$build/demo/counter_server" <"$scratch/in" >"$scratch/out" {input}>&- {output}>&- &
server=$!
read -r -t 60 -u "$output" word port && [[ $word == PORT ]] || fail "the server did not start"
exec {packets}<>"/dev/udp/127.0.0.1/$port"
say "A server (process $server) answers each packet with a number that a kernel counts up on the device:"
for n in 1 2 3; do
    expect_number "$n"
done
look
[[ -n $(descriptors) ]] || fail "the server has no device file open: does it use the device at all?"
before=$(used)

say "It is suspended:"
show "$tool" suspend "$server"
look
[[ $("$tool" state "$server") == checkpointed ]] || fail "it is not suspended"
[[ -z $(descriptors) ]] || fail "it still has open: $(descriptors)"
[[ -z $(memory) ]] || fail "it still has $(memory) MiB of device memory"
(($(used) < before)) || fail "as much device memory is in use as before"

say "It is alive, but a packet gets no answer now:"
ask
! await 1 || fail "the server answered $number while it was suspended"
kill -0 "$server" 2>/dev/null || fail "the server is gone"
states=$(cat /proc/"$server"/task/*/stat | sed 's/.*) \(.\).*/\1/' | sort -u | tr -d '\n')
echo "  packet -> (nothing within a second; the process is there, its threads are in state $states)"

say "It is resumed, and the packet that waits is answered, with the next number:"
show "$tool" resume "$server"
await 20 || fail "the packet that waited was not answered"
((number == 4)) || fail "the packet that waited was answered with $number, not 4"
echo "  the waiting packet -> $number"
expect_number 5
look

# Its input ends when nobody has the pipe open for writing any more.
exec {input}>&-
status=0
wait "$server" || status=$?
server=''
((status == 0)) || fail "the server ended with status $status"
say "demo: done, nothing was lost ($device)"
