# shellcheck shell=bash disable=SC2154
# One program under test: started, asked, taken off the GPU, looked at from outside. Sourced by test/run_programs,
# which sets build, gpu, bare, seed, name, work and gpu_dir. A function that finds something wrong does not return:
# test_fail ends the subshell that the program runs in. Every wait is bounded by STEP_SECONDS.

STEP_SECONDS=${STEP_SECONDS:-60}

# ---- results: the exit status of the subshell

test_fail() {
    local last

    echo "  FAILED $name: $*"
    last=$(program_last_line)
    [[ -z $last ]] || echo "  the last that it said: $last"
    [[ -n $pid ]] && process_runs "$pid" && program_dump
    if [[ -s $work/err ]]; then
        echo "  standard error of $name:"
        tail -n 30 "$work/err" | sed 's/^/    /'
    fi
    if [[ -s $work/ctl.err ]]; then
        echo "  last words of cudackpt-ctl:"
        sed 's/^/    /' "$work/ctl.err"
    fi
    program_kill
    exit 1
}

test_skip() {
    program_kill
    echo "$*" >"$work/skipped"
    exit 77
}

# ---- the program

# Exists and is no zombie.
process_runs() {
    local line

    read -r line 2>/dev/null <"/proc/$1/stat" || return 1
    [[ ${line##*) } != Z* ]]
}

# What hangs, and where: for each thread its name, system call and kernel function; stacks if gdb is there.
program_dump() {
    local task

    for task in /proc/"$pid"/task/*; do
        echo "    thread ${task##*/}: comm $(cat "$task/comm"), syscall $(cat "$task/syscall"), wchan $(cat "$task/wchan")"
    done 2>/dev/null
    if command -v gdb >/dev/null && [[ -z ${NO_GDB:-} ]]; then
        timeout 20 gdb -p "$pid" -batch -ex 'thread apply all backtrace 12' 2>/dev/null |
            grep -E '^(Thread|#)' | sed 's/^/    /'
    fi
}

program_kill() {
    [[ -n $pid ]] && kill -9 "$pid" 2>/dev/null
    [[ -n $job ]] && kill -9 "$job" 2>/dev/null
    [[ -n $job ]] && { wait "$job"; } 2>/dev/null # the shell's word about a killed job is of no interest
    job='' pid=''
}

# Starts $name and waits until it is ready. Sets job (what was started) and pid (what to control).
program_start() {
    local preload='' library_path=${LD_LIBRARY_PATH:-}

    mkfifo "$work/in" "$work/out"
    # Both ends, so that neither open waits for the other side.
    exec {to}<>"$work/in" {from}<>"$work/out"
    ((bare)) || preload=${PRELOAD_EXTRA:+$PRELOAD_EXTRA:}$build/libcudackpt.so
    ((bare)) && preload=${PRELOAD_EXTRA:-}
    ((gpu)) || library_path=$build/fake${library_path:+:$library_path}
    LD_PRELOAD=$preload LD_LIBRARY_PATH=$library_path FAKE_GPU_DIR=$gpu_dir TEST_SEED=$seed TMPDIR=$work \
        "$build/programs/$name" <"$work/in" >"$work/out" 2>"$work/err" {to}>&- {from}>&- &
    job=$!
    pid=$job
    program_await READY
    pid=${answer#READY }
}

program_say() {
    echo "$1" >&"$to"
}

# Reads what the program says until a line begins with $1; that line is in answer.
program_await() {
    local end=$((SECONDS + STEP_SECONDS)) gone

    while ((SECONDS < end)); do
        process_runs "$job" && gone=0 || gone=1 # before the read: what it said last must not be lost
        if read -r -t 1 answer <&"$from"; then
            case $answer in
            "$1"*) return ;;
            FAIL*) test_fail "${answer#FAIL }" ;;
            SKIP*) test_skip "${answer#SKIP }" ;;
            esac
        elif ((gone)); then
            wait "$job"
            test_fail "the program is gone (status $?) while it should have said $1"
        fi
    done
    test_fail "no $1 within $STEP_SECONDS s"
}

# Sets rounds, ticks, threads as the program tells them.
program_beat() {
    program_say beat
    program_await BEAT
    [[ $answer =~ rounds=([0-9]+)\ ticks=([0-9]+)\ threads=([0-9]+) ]] || test_fail "strange answer: $answer"
    rounds=${BASH_REMATCH[1]} ticks=${BASH_REMATCH[2]} threads=${BASH_REMATCH[3]}
}

program_verify() {
    program_say verify
    program_await PASS
}

# The program's main thread makes rounds.
program_expect_rounds() {
    local before end=$((SECONDS + STEP_SECONDS))

    program_beat
    before=$rounds
    while ((rounds < before + 2)); do
        ((SECONDS < end)) || test_fail "$1: no more rounds after $rounds"
        sleep 0.02
        program_beat
    done
}

# Ends the program with a command (quit, exit) and expects this exit status.
program_end() {
    local end=$((SECONDS + STEP_SECONDS)) status

    program_say "$1"
    while process_runs "$job"; do
        ((SECONDS < end)) || test_fail "it does not end after $1"
        sleep 0.02
    done
    wait "$job"
    status=$?
    job='' pid=''
    ((status == $2)) || test_fail "exit status $status after $1, not $2; last line: $(program_last_line)"
}

program_last_line() {
    local line last=''

    [[ -n $from ]] || return
    while read -r -t 0.1 line <&"$from"; do
        last=$line
    done
    echo "$last"
}

# ---- the tool

# control ACTION [OPTION...]: sets status and, in seconds, elapsed. Its sentence is in $work/ctl.err.
control() {
    local action=$1 begin

    shift
    begin=${EPOCHREALTIME/./}
    timeout -k 1 "$STEP_SECONDS" "$build/cudackpt-ctl" "$action" "$pid" "$@" >"$work/ctl.out" 2>"$work/ctl.err"
    status=$?
    elapsed=$((${EPOCHREALTIME/./} - begin))
    ((status == 124)) && test_fail "cudackpt-ctl $action took more than $STEP_SECONDS s"
    return 0
}

control_ok() {
    control "$@"
    ((status == 0)) || test_fail "cudackpt-ctl $1 gave $status: $(tail -n 1 "$work/ctl.err")"
}

# Sets state.
control_state() {
    control_ok state
    state=$(head -n 1 "$work/ctl.out")
}

expect_state() {
    control_state
    [[ $state == "$1" ]] || test_fail "the state is $state, not $1"
}

# ---- what a suspended program holds

device_descriptors() {
    local fd target

    for fd in /proc/"$1"/fd/*; do
        target=$(readlink "$fd" 2>/dev/null)
        case $target in
        /dev/nvidia* | "$gpu_dir"/*) echo "descriptor ${fd##*/} is $target" ;;
        esac
    done
}

device_maps() {
    grep -E " (/dev/nvidia|$gpu_dir/)" /proc/"$1"/maps
}

# Names the process if it holds device memory.
memory_of_process() {
    if ((gpu)); then
        nvidia-smi --query-compute-apps=pid,used_memory --format=csv,noheader,nounits | awk -F', ' -v p="$1" '$1 == p'
    else
        "$build/fake/fake-smi" "$gpu_dir" | awk -v p="$1" '$1 == p'
    fi
}

# Device memory in MiB that is used by all processes.
memory_of_all() {
    if ((gpu)); then
        nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits
    else
        "$build/fake/fake-smi" "$gpu_dir" | awk '$1 == "device" { print $3 }'
    fi | awk '{ sum += $1 } END { print sum + 0 }'
}

# It has its own threads and the control thread. Some of its own may come and go while we look.
check_threads() {
    local try found

    for ((try = 0; try < 50; try++)); do
        program_beat
        found=(/proc/"$pid"/task/*)
        ((${#found[@]} == threads + 1)) && return
        sleep 0.02
    done
    test_fail "it has ${#found[@]} threads, $threads of its own: $(cat /proc/"$pid"/task/*/comm | tr '\n' ' ')"
}

check_off_gpu() {
    local held child try used

    expect_state checkpointed
    held=$(device_descriptors "$pid")
    [[ -z $held ]] || test_fail "still open while suspended: $held"
    held=$(device_maps "$pid")
    [[ -z $held ]] || test_fail "still mapped while suspended: $held"
    # A child that was forked without exec has copies of the parent's descriptors unless somebody closed them.
    for child in $(cat /proc/"$pid"/task/*/children 2>/dev/null); do
        held=$(device_descriptors "$child")
        [[ -z $held ]] || test_fail "child $child keeps open: $held"
    done
    ! grep -qE "@cuda-uvmfd-[0-9]+-$pid\$" /proc/net/unix || test_fail "the driver's socket is still there"
    held=$(memory_of_process "$pid")
    [[ -z $held ]] || test_fail "it is still listed as a user of the device: $held"
    for ((try = 0; try < 20; try++)); do
        used=$(memory_of_all)
        ((used <= idle_memory + 8)) && break
        sleep 0.1
    done
    ((used <= idle_memory + 8)) || test_fail "$used MiB of device memory are used, $idle_memory were when idle"
    check_threads
    check_alive_off_gpu
}

# Its CPU threads run, its main thread waits at the gate.
check_alive_off_gpu() {
    local ticks_before rounds_before

    program_beat
    ticks_before=$ticks rounds_before=$rounds
    sleep 0.03
    program_beat
    ((ticks > ticks_before)) || test_fail "its CPU threads stand still while it is suspended"
    ((rounds <= rounds_before + 1)) || test_fail "it went on calling CUDA while suspended"
}

# ---- times

sleep_random() { # up to $1 ms
    local ms=$((RANDOM % ($1 + 1)))

    sleep "$((ms / 1000)).$(printf '%03d' $((ms % 1000)))"
}

seconds() { # from microseconds
    printf '%d.%03d' $(($1 / 1000000)) $(($1 / 1000 % 1000))
}
