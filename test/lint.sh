#!/bin/bash
# Static checks of sources and scripts: test/lint.sh COMPILER-FLAG... (`make lint`). Names every finding; the last line
# says how many rules hold. A tool that is not there is said so; CI has all of them.

set -uo pipefail

cd "$(dirname "$0")/.." || exit 2
cc=${CC:-gcc}
jobs_wanted=$(nproc)
passed=0 failed=0
flags=("$@")

# rule TITLE COMMAND...: holds when the command succeeds.
rule() {
    local title=$1 output

    shift
    if output=$("$@" 2>&1); then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        printf 'lint: %s\n' "$title"
        printf '%s\n' "$output" | sed 's/^/    /'
    fi
}

# with TOOL TITLE COMMAND...
with() {
    if command -v "$1" >/dev/null; then
        rule "${@:2}"
    else
        echo "lint: not checked, there is no $1 (make setup): $2"
    fi
}

# Succeeds when grep finds nothing.
nowhere() {
    ! grep -n "$@"
}

files() {
    find "$@" -type f | sort
}

mapfile -t ours < <(files libinterpose shared ctl -name '*.[chS]')
mapfile -t library < <(files libinterpose shared -name '*.[ch]')
mapfile -t sources < <(files libinterpose shared ctl -name '*.c')
mapfile -t headers < <(files libinterpose shared ctl test/fake_driver test/programs -name '*.h')
mapfile -t test_sources < <(files test -name '*.[ch]' -o -name '*.cu')
mapfile -t bash_scripts < <(grep -rlE '^#!/bin/(ba)?sh' .ci test libinterpose | sort)
mapfile -t texts < <(files .ci libinterpose shared ctl test docs && ls -- README.md Makefile .clang-format .clang-tidy)

# ---- text

rule "trailing blanks or carriage returns" nowhere -IP '[ \t]+$|\r' "${texts[@]}"
mapfile -t no_tabs < <(printf '%s\n' "${texts[@]}" | grep -v -e '^Makefile$' -e '^docs/man/')
rule "tabs" nowhere -IP '\t' "${no_tabs[@]}"
rule "unfinished work" nowhere -IE 'TO''DO|FIX''ME|#if'' 0' "${texts[@]}"

ends_with_newline() {
    local file bad=0

    for file in "${texts[@]}"; do
        [[ -z $(tail -c 1 "$file") ]] || { echo "$file" && bad=1; }
    done
    return $bad
}
rule "the last line has no end" ends_with_newline

# Tables of declarations and the tests of a unit are long because there is much of the same.
short_files() {
    wc -l "${ours[@]}" "${test_sources[@]}" | awk '$2 != "total" && $1 > 700 &&
        $2 !~ /^libinterpose\/cuda_abi\.h$/ && $2 !~ /^test\/check_/ { print; bad = 1 } END { exit bad }'
}
rule "a file of more than 700 lines has two jobs" short_files

version_is_one() {
    local page bad=0

    for page in docs/man/*; do
        head -n 5 "$page" | grep -q "\"cudackpt $VERSION\"" || { echo "$page is not of $VERSION" && bad=1; }
    done
    return $bad
}
rule "manual pages of another version" version_is_one

# ---- C

# It lives in somebody else's program: no output but log.c's, no end of the process.
rule "the library ends the process or prints" \
    nowhere -E '\b(v?printf|v?fprintf|puts|fputs|putchar|perror|exit|_exit|_Exit|quick_exit|abort|assert)\(' "${library[@]}"
rule "a toolkit's header outside of test/api and test/gpu" \
    nowhere -rE '#include *([<"](cuda|cuda_runtime|cuda_runtime_api|cudaTypedefs)\.h|<nvml\.h)' \
    --include='*.[chS]' --include='*.inc' --exclude-dir=api libinterpose shared ctl test
rule "static checks are switched off" nowhere -rE '#pragma GCC diagnostic|NOLINT' --include='*.[chS]' libinterpose shared ctl

header_stands_alone() {
    local header bad=0

    for header in "${headers[@]}"; do
        case $header in
        libinterpose/tracked.h | test/fake_driver/fake_*) continue ;; # parts of a table, and of fake.h
        esac
        printf '#include "%s"\n' "$header" |
            "$cc" "${flags[@]}" -Wno-unused -I. -fsyntax-only -x c - || bad=1
    done
    return $bad
}
rule "a header that needs another one before it" header_stands_alone

# Each suppression is a false alarm: a second look at a value under its lock, an array's end as a limit, an argument
# that is written by another argument of the call.
with cppcheck "cppcheck" cppcheck --quiet -j "$jobs_wanted" --std=c11 --enable=warning,portability --error-exitcode=1 \
    --inline-suppr --suppress=missingIncludeSystem --suppress=identicalInnerCondition \
    --suppress=pointerSize:libinterpose/kind_library.c --suppress=arrayIndexOutOfBounds:libinterpose/thunk.c \
    --suppress=uninitvar:libinterpose/control_peer.c \
    -D_GNU_SOURCE -D__x86_64__ "-DCUDACKPT_VERSION=\"$VERSION\"" -Ilibinterpose -Ishared "${sources[@]}"

tidy() {
    printf '%s\n' "${sources[@]}" | xargs -P "$jobs_wanted" -n 8 bash -c \
        'split=$1; flags=("${@:2:split}"); clang-tidy --quiet "${@:split+2}" -- "${flags[@]}" 2>/dev/null' \
        tidy ${#flags[@]} "${flags[@]}"
}
with clang-tidy "clang-tidy" tidy

# ---- scripts

scripts() {
    local script bad=0

    for script in "${bash_scripts[@]}"; do
        shellcheck -x -S warning "$script" || bad=1
    done
    # What only makes sense together with its sourced parts.
    shellcheck -x -a -S warning test/run_programs || bad=1
    return $bad
}
with shellcheck "shellcheck" scripts

echo "lint: $passed passed, $failed failed"
((failed == 0))
