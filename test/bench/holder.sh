# shellcheck shell=bash disable=SC2154
# A bench_holder, started, suspended, checked. Sourced after device.sh.

holder='' # process id

# holder_start PRELOAD KIND COUNT: sets holder and held.
holder_start() {
    local answer

    coproc HOLDER { LD_PRELOAD=$1 exec "$build/bench/bench_holder" "$2" "$3"; }
    holder=$HOLDER_PID
    exec {to}>&"${HOLDER[1]}" {from}<&"${HOLDER[0]}"
    read -r -t 300 answer <&"$from" || answer='nothing'
    [[ $answer == 'READY '* ]] || holder_fails "bench_holder $2 $3 says: $answer"
    held=${answer#READY }
}

holder_check() {
    local answer

    echo >&"$to"
    read -r -t 300 answer <&"$from" || answer=nothing
    [[ $answer == PASS ]] || holder_fails "after a resume the program says: $answer"
}

holder_end() {
    exec {to}>&- {from}<&-
    # The shell's own copies of the pipes, closed by now where the process has ended by itself.
    [[ -z ${HOLDER[1]:-} ]] || eval "exec ${HOLDER[1]}>&-"
    [[ -z $holder ]] || wait "$holder" || holder_fails "bench_holder ends with status $?"
    holder=''
}

holder_fails() {
    echo "bench: $*" >&2
    [[ -z $holder ]] || kill -9 "$holder" 2>/dev/null
    exit 1
}

# timed COMMAND...: sets seconds.
timed() {
    local begin=${EPOCHREALTIME/./} took

    "$@" || holder_fails "$* failed"
    took=$((${EPOCHREALTIME/./} - begin))
    printf -v seconds '%d.%06d' $((took / 1000000)) $((took % 1000000))
}

# toggle ROUNDS: sets off and on, the medians in seconds.
toggle() {
    local round

    : >"$scratch/off"
    : >"$scratch/on"
    for ((round = 0; round < $1; round++)); do
        timed "$tool" suspend "$holder" --timeout 120s
        echo "$seconds" >>"$scratch/off"
        timed "$tool" resume "$holder"
        echo "$seconds" >>"$scratch/on"
        holder_check
    done
    off=$(median <"$scratch/off")
    on=$(median <"$scratch/on")
}
