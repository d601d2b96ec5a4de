#!/bin/sh
# Lists the functions of a driver that have no row: check_installed_driver.sh [LIBCUDA]. Exit 1 if there are any, 77
# without a driver. The debugger's symbols (cudbg*) are mostly data and stay the driver's own.
LC_ALL=C
export LC_ALL
library=$(dirname "$0")/../../libinterpose
driver=$1
if [ -z "$driver" ]; then
    PATH=$PATH:/sbin:/usr/sbin
    driver=$(ldconfig -p | awk '$1 == "libcuda.so.1" && /x86-64/ { print $NF; exit }')
fi
if [ -z "$driver" ] || [ ! -e "$driver" ]; then
    echo "no driver installed"
    exit 77
fi

exports=$(nm -D --defined-only "$driver") || exit 1
exports=$(echo "$exports" | awk '$3 ~ /^cu/ && $3 !~ /^cudbg/ { sub(/@.*/, "", $3); print $3 }' | sort -u)
if [ -z "$exports" ]; then
    echo "$driver exports no function of the driver" >&2
    exit 1
fi
rows=$(sed -n 's/^ENTRY([A-Z]*, \(\w*\),.*/\1/p; s/^ENTRY_RAW(\(\w*\),.*/\1/p' "$library/driver_api.inc" \
    "$library/driver_raw.inc" | sort -u)
missing=$(printf '%s\n' "$exports" "$rows" "$rows" | sort | uniq -u)
if [ -n "$missing" ]; then
    echo "without a row, in $driver:" >&2
    echo "$missing"
    exit 1
fi
echo "$(echo "$exports" | wc -l) functions of $driver all have a row"
