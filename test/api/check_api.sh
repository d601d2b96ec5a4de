#!/bin/sh
# Compares what is checked in with a toolkit: check_api.sh [TOOLKIT [BUILD-FOLDER]]. Exit 77 without a toolkit.
toolkit=${1:-${CUDA_HOME:-/usr/local/cuda}}
here=$(cd "$(dirname "$0")" && pwd)
library=$here/../../libinterpose
build=${2:-build/api}
cc=${CC:-cc}
failed=0

if [ ! -e "$toolkit/include/cuda.h" ]; then
    echo "check-api: no toolkit in $toolkit"
    exit 77
fi
mkdir -p "$build" || exit 1
fail() {
    echo "check-api: $*" >&2
    failed=1
}

"$library/gen_driver_api.py" --check "$toolkit" || fail "the generated files differ; run libinterpose/gen_driver_api.py"

flags="-std=gnu11 -Wall -I$here -I$here/include -I$library -isystem $toolkit/include"
$cc $flags -fsyntax-only "$here/rows.c" || fail "a row has another type than the toolkit's prototype"

"$here/gen_facts.py" "$library/cuda_abi.h" >"$build/facts.c" || exit 1
for header in cuda_abi toolkit; do
    $cc $flags "-DHEADER=\"$header.h\"" -o "$build/facts_$header" "$build/facts.c" || exit 1
    "$build/facts_$header" >"$build/$header.txt" || exit 1
done
diff "$build/cuda_abi.txt" "$build/toolkit.txt" || fail "cuda_abi.h (<) differs from the toolkit (>)"

stub=$toolkit/lib64/stubs/libcuda.so
[ -e "$stub" ] || stub=$toolkit/lib/stubs/libcuda.so
[ ! -e "$stub" ] || "$here/check_installed_driver.sh" "$stub" || fail "an export of the stub has no row"

[ $failed = 0 ] && echo "check-api: $(grep -c '^ENTRY' "$library/driver_api.inc") rows," \
    "$(wc -l <"$build/toolkit.txt") facts agree with $toolkit"
exit $failed
