#!/bin/bash
# What `make install` leaves: all of it is there and works, ldconfig adds no name, uninstall removes it. And what the
# library shows to a program that it is loaded into.

set -euo pipefail

cd "$(dirname "$0")/.."
build=${BUILD:-build}
root=$(mktemp -d "${TMPDIR:-/tmp}/install_test.XXXXXX")
trap 'rm -rf "$root"' EXIT
PATH=$PATH:/sbin:/usr/sbin
unset MAKEFLAGS MFLAGS MAKELEVEL

fail() {
    echo "install_test: $*"
    exit 1
}

make_here() {
    make --silent BUILD="$build" DESTDIR="$root" prefix=/opt/ckpt libdir=/opt/ckpt/lib64 "$@"
}

# The build that is tested, whatever flags it was made with: its targets are old enough to be installed as they are.
make_here install -o "$build/libcudackpt.so" -o "$build/cudackpt-ctl"
installed=$(cd "$root" && find . -type f -o -type l | sort)
expected=$(
    echo ./opt/ckpt/bin/cudackpt-ctl
    echo ./opt/ckpt/lib64/libcudackpt.so
    echo ./opt/ckpt/lib64/pkgconfig/cudackpt.pc
    for page in docs/man/*; do
        echo "./opt/ckpt/share/man/man${page##*.}/${page##*/}"
    done | sort
)
[[ $installed == "$expected" ]] || fail "installed is: $installed"

library=$root/opt/ckpt/lib64/libcudackpt.so
version=$("$root/opt/ckpt/bin/cudackpt-ctl" --version | grep -o '[0-9][0-9.]*')
grep -qx "libdir=/opt/ckpt/lib64" "$root/opt/ckpt/lib64/pkgconfig/cudackpt.pc" || fail "cudackpt.pc has another libdir"
grep -qx "Version: $version" "$root/opt/ckpt/lib64/pkgconfig/cudackpt.pc" || fail "cudackpt.pc has another version"
if command -v pkg-config >/dev/null; then
    told=$(PKG_CONFIG_PATH=$root/opt/ckpt/lib64/pkgconfig pkg-config --variable=preload cudackpt)
    [[ $told == /opt/ckpt/lib64/libcudackpt.so ]] || fail "pkg-config says that the library is $told"
fi
for page in "$root"/opt/ckpt/share/man/man?/*; do
    head -n 5 "$page" | grep -q "\"cudackpt $version\"" || fail "${page##*/} is of another version than $version"
done

# A link libcuda.so.1, or anything like it, would shadow the driver for every program.
ldconfig -n "$root/opt/ckpt/lib64"
[[ $(cd "$root" && find . -type f -o -type l | sort) == "$expected" ]] || fail "ldconfig added a name"

# Any program can be started with it, here without a driver, and it prints nothing.
told=$(LD_PRELOAD=$library /bin/echo fine 2>&1)
[[ $told == fine ]] || fail "with the preload, echo prints: $told"

needed=$(readelf -d "$library" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | grep -vxE 'libc\.so\.6|ld-linux-x86-64\.so\.2' || true)
[[ -z $needed ]] || fail "the library needs more than libc: $needed"
! readelf -d "$library" | grep -q TEXTREL || fail "the library has text relocations"
exported=$(nm -D --defined-only "$library" | awk '{ print $3 }' | grep -vE '^(cu[A-Z]|cudackpt_|dlopen$|dlsym$)' || true)
[[ -z $exported ]] || fail "the library exports $exported"

make_here uninstall
left=$(cd "$root" && find . ! -type d)
[[ -z $left ]] || fail "uninstall left $left"
echo "install_test: all well"
