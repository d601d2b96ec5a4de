# shellcheck shell=bash
# The device for benchmarks and the demo: the GPU if there is one, else the fake driver. Sourced; expects here (the
# folder of the script). Sets build, gpu, device, and the environment that programs find the driver by.

build=$(readlink -f "${BUILD:-$here/../../build}")
scratch=$(mktemp -d "${TMPDIR:-/tmp}/cudackpt-bench.XXXXXX")
export FAKE_GPU_DIR=$scratch/gpu
mkdir "$FAKE_GPU_DIR"
if nvidia-smi -L >/dev/null 2>&1; then
    gpu=1
    device=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -n 1)
else
    gpu=0
    device='fake driver (no GPU here)'
    export LD_LIBRARY_PATH=$build/fake${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
fi
preload=$build/libcudackpt.so
tool=$build/cudackpt-ctl
export build gpu device preload tool

median() {
    sort -g | awk '{ value[NR] = $1 } END { print NR % 2 ? value[(NR + 1) / 2] : (value[NR / 2] + value[NR / 2 + 1]) / 2 }'
}
