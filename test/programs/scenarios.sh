# shellcheck shell=bash disable=SC2154
# What is done to a program: each scenario runs in a subshell of its own. Sourced by test/run_programs.

# Expectations stand in the program's source, on a line of its own: // expect: KEY=VALUE ...
#   suspend-exit=N,...   exit statuses of cudackpt-ctl suspend that are right (0)
#   timeout=MS           suspend is called with this time-out
#   message=ERE          what a refusal must say
#   then=COMMAND         after a refusal the program is told this, and the next suspend must succeed
#   again=COMMAND        tells it to get back into the state of before
# Sets expect_exit, expect_timeout, expect_message, expect_then, expect_again.
read_expectations() {
    local word

    expect_exit=0 expect_timeout='' expect_message=. expect_then='' expect_again=''
    for word in $(sed -n 's|^// expect: ||p' "$here/programs/$name.c"); do
        case $word in
        suspend-exit=*) expect_exit=${word#*=} ;;
        timeout=*) expect_timeout=${word#*=} ;;
        message=*) expect_message=${word#*=} ;;
        then=*) expect_then=${word#*=} ;;
        again=*) expect_again=${word#*=} ;;
        *) test_fail "unknown expectation $word" ;;
        esac
    done
}

summarize() {
    printf '%s' "$*" >"$work/summary"
}

# ---- the programs themselves

scenario_bare() {
    local round

    program_start
    for ((round = 0; round < rounds_wanted; round++)); do
        program_expect_rounds "bare"
        program_verify
    done
    program_end quit 0
    summarize "ok, bare"
}

# One suspend that must succeed, what it left, and a resume. Adds to off and on.
suspend_and_resume() {
    control_ok suspend
    off=$((off + elapsed))
    check_off_gpu
    sleep_random 100
    control_ok resume
    on=$((on + elapsed))
    toggles=$((toggles + 1))
    expect_state running
}

# A suspend that was refused has changed nothing.
check_refused() {
    grep -qE -- "$expect_message" "$work/ctl.err" || test_fail "the refusal does not say \"$expect_message\""
    refusals=$((refusals + 1))
    expect_state running
    program_expect_rounds "after a refused suspend"
    program_verify
    [[ -n $expect_then ]] || return
    program_say "$expect_then"
    suspend_and_resume
    program_expect_rounds "after the resume"
    program_verify
    [[ -n $expect_again ]] || return
    program_say "$expect_again"
    program_expect_rounds "after $expect_again" # the main thread is back in that state
}

scenario_toggle() {
    local round words off=0 on=0 toggles=0 refusals=0

    read_expectations
    idle_memory=$(memory_of_all)
    program_start
    for ((round = 0; round < $1; round++)); do
        sleep_random 200
        control suspend ${expect_timeout:+--timeout "$expect_timeout"}
        [[ ,$expect_exit, == *,$status,* ]] ||
            test_fail "suspend gave $status, not $expect_exit: $(tail -n 1 "$work/ctl.err")"
        if ((status)); then
            check_refused
            continue
        fi
        off=$((off + elapsed))
        check_off_gpu
        sleep_random 200
        control_ok resume
        on=$((on + elapsed))
        toggles=$((toggles + 1))
        expect_state running
        program_expect_rounds "after the resume"
        program_verify
    done
    program_end quit 0
    words=''
    ((toggles)) && words="$toggles rounds, off $(seconds $((off / toggles))) s, on $(seconds $((on / toggles))) s, "
    ((refusals)) && words+="$refusals refused as expected, "
    summarize "${words}ok"
}

# ---- growth

# Sets rss (KiB), maps, fds, tasks.
measure() {
    local open=(/proc/"$pid"/fd/*) all=(/proc/"$pid"/task/*)

    rss=$(awk '/^VmRSS/ { print $2 }' /proc/"$pid"/status)
    maps=$(wc -l </proc/"$pid"/maps)
    fds=${#open[@]}
    tasks=${#all[@]}
}

scenario_soak() {
    local round off=0 on=0 warm=20 rss0=0 maps0=0 fds0=0 tasks0=0

    idle_memory=$(memory_of_all)
    program_start
    ((warm < $1)) || warm=$(($1 / 2))
    for ((round = 1; round <= $1; round++)); do
        sleep_random 20
        control_ok suspend
        off=$((off + elapsed))
        ((round % 50 == 1)) && check_off_gpu
        control_ok resume
        on=$((on + elapsed))
        if ((round % 10 == 0 || round == $1)); then
            program_expect_rounds "after resume $round"
            program_verify
        fi
        if ((round == warm)); then
            measure
            rss0=$rss maps0=$maps fds0=$fds tasks0=$tasks
        fi
    done
    program_verify
    measure
    echo "  $name after $warm and $1 toggles: RSS $rss0 and $rss KiB, $maps0 and $maps maps, $fds0 and $fds" \
        "descriptors, $tasks0 and $tasks threads"
    ((rss <= rss0 + 16384)) || test_fail "it grew by $((rss - rss0)) KiB"
    ((maps <= maps0 + 16)) || test_fail "it has $((maps - maps0)) more maps"
    ((fds <= fds0 + 1)) || test_fail "it has $((fds - fds0)) more descriptors"
    ((tasks <= tasks0 + 1)) || test_fail "it has $((tasks - tasks0)) more threads"
    program_end quit 0
    summarize "$1 toggles, off $(seconds $((off / $1))) s, on $(seconds $((on / $1))) s, ok"
}

# ---- failures in the middle

# The fault point $1 fails once. Whatever fails says why and loses nothing; the next try works.
scenario_fault() {
    local point=$1 where

    idle_memory=$(memory_of_all)
    export CUDACKPT_FAULT=$point
    program_start
    unset CUDACKPT_FAULT
    sleep_random 100
    control suspend --timeout 2000
    if ((status)); then
        where=suspend
        [[ -s $work/ctl.err ]] || test_fail "the suspend failed without a word"
        control_state
        # After the point of no return it can't be undone: it stays off, and comes back when asked to.
        [[ $state == running ]] || control_ok resume
    else
        where=resume
        check_off_gpu
        control resume
        ((status)) || test_fail "the fault point was not reached: suspend and resume succeeded"
        [[ -s $work/ctl.err ]] || test_fail "the resume failed without a word"
        control_state
        [[ $state == checkpointed || $state == failed ]] || test_fail "the state is $state after a failed resume"
        check_alive_off_gpu
        control_ok resume
    fi
    program_expect_rounds "after a failed $where"
    program_verify
    control_ok suspend
    check_off_gpu
    control_ok resume
    program_expect_rounds "after the second round"
    program_verify
    program_end quit 0
    summarize "$where failed once, nothing lost, ok"
}

# ---- the tool, or the program, is killed

# The action goes on, or is undone, without the tool: the state becomes a lasting one.
await_lasting_state() {
    local end=$((SECONDS + STEP_SECONDS))

    while ((SECONDS < end)); do
        control state
        state=$(head -n 1 "$work/ctl.out")
        if ((status == 0)) && [[ $state == running || $state == checkpointed ]]; then
            # Not in the middle of something: an action is taken, not refused as busy.
            if [[ $state == running ]]; then
                control suspend
            else
                control resume
            fi
            ((status == 0)) && return
        fi
        sleep 0.02
    done
    test_fail "neither running nor suspended $STEP_SECONDS s after the tool was killed: $state"
}

# Kills the tool in the middle of suspend or resume, $2 times.
scenario_kill_tool() {
    local action=$1 round tool longest=0

    program_start
    for ((round = 0; round < $2; round++)); do
        if [[ $action == resume ]]; then
            control_ok suspend
        fi
        # The first time runs through, to know how long it takes.
        if ((!longest)); then
            control_ok "$action"
            longest=$((elapsed / 1000 + 1))
        else
            "$build/cudackpt-ctl" "$action" "$pid" >/dev/null 2>&1 &
            tool=$!
            sleep_random "$longest"
            kill -9 "$tool" 2>/dev/null
            { wait "$tool"; } 2>/dev/null
            await_lasting_state
        fi
        control_state
        if [[ $state == checkpointed ]]; then
            check_alive_off_gpu
            control_ok resume
        fi
        program_expect_rounds "after the tool was killed"
        program_verify
    done
    program_end quit 0
    summarize "$2 times, ok"
}

# The program ends in a state: killed, by SIGTERM, or by exit() on a thread that does not call CUDA.
scenario_end() {
    local ended end

    program_start
    ended=$pid
    case $1 in
    locked) control_ok lock ;;
    checkpointed) control_ok suspend ;;
    esac
    case $2 in
    kill | term)
        end=$((SECONDS + STEP_SECONDS))
        { # the shell's word about a killed job is of no interest
            kill -"${2^^}" "$job"
            while process_runs "$job"; do
                ((SECONDS < end)) || test_fail "it does not end"
                sleep 0.02
            done
            wait "$job"
        } 2>/dev/null
        job='' pid=''
        ;;
    exit) program_end exit 0 ;;
    esac
    [[ -z $(memory_of_process "$ended") ]] || test_fail "device memory is still held in its name"
    # The tool finds nobody, and says so.
    pid=$ended
    control state
    pid=''
    ((status == 3)) || test_fail "cudackpt-ctl state of a process that is gone gave $status, not 3"
    summarize ok
}
