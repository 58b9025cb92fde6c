#!/bin/sh
# Makes each target in turn and says at the end what each took, also when one fails:
# a suite that grows slow shows where. Usage: scripts/parts.sh MAKE TARGET...
set -u
make=$1
shift
table=''
status=0
for target in "$@"; do
    begin=$(date +%s)
    "$make" --no-print-directory "$target" || status=$?
    took=$(($(date +%s) - begin))
    table="$table$(printf '  %-18s %3d min %02d s' "$target" $((took / 60)) $((took % 60)))
"
    [ "$status" -eq 0 ] || break
done
printf 'what each part took:\n%s' "$table"
[ "$status" -eq 0 ] || echo "$target failed"
exit "$status"
