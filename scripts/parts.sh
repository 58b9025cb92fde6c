#!/bin/sh
# Run make for each target in turn, even if a target fails. At the end, print the time of each
# target and the names of the failed targets. Usage: scripts/parts.sh MAKE TARGET...
set -u
make=$1
shift
table=''
failed=''
for target in "$@"; do
    begin=$(date +%s)
    "$make" --no-print-directory "$target" || failed="$failed $target"
    took=$(($(date +%s) - begin))
    table="$table$(printf '  %-18s %3d min %02d s' "$target" $((took / 60)) $((took % 60)))
"
done
printf 'what each part took:\n%s' "$table"
[ -z "$failed" ] || {
    echo "failed:$failed"
    exit 1
}
