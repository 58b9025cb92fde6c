#!/bin/sh
# Run make for each target in turn, even if a target fails. At the end, print the time of each
# target and the names of the failed targets. Usage: scripts/parts.sh MAKE TARGET:SHARE...
#
# With TEST_UNTIL (seconds since the epoch), the targets share the time until then, in proportion to
# SHARE; time that a target does not need is left to the later ones. The tests that a target does not
# reach are not run (scripts/time_limit.py), and their number is printed.
set -u
make=$1
shift
table=''
failed=''
end=${TEST_UNTIL:-}
TEST_NOT_RUN=$(mktemp)
export TEST_NOT_RUN
trap 'rm -f "$TEST_NOT_RUN"' EXIT
left=0
for part in "$@"; do left=$((left + ${part#*:})); done
total=0
for part in "$@"; do
    target=${part%:*} share=${part#*:}
    begin=$(date +%s)
    if [ -n "$end" ]; then
        export TEST_UNTIL=$((begin + (end - begin) * share / left))
    fi
    left=$((left - share))
    : >"$TEST_NOT_RUN"
    "$make" --no-print-directory "$target" || failed="$failed $target"
    took=$(($(date +%s) - begin))
    missed=$(awk '{ sum += $1 } END { print sum + 0 }' "$TEST_NOT_RUN")
    total=$((total + missed))
    table="$table$(printf '  %-18s %3d min %02d s%s' "$target" $((took / 60)) $((took % 60)) \
        "$([ "$missed" = 0 ] || echo "   $missed tests not run")")
"
done
printf 'what each part took:\n%s' "$table"
[ "$total" = 0 ] || echo "NOT RUN: $total tests, because this machine was too slow for the time of each part"
[ -z "$failed" ] || {
    echo "failed:$failed"
    exit 1
}
