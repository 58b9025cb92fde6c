#!/bin/sh
# Run a command that prints nothing, and print TEXT and the elapsed time every four seconds.
# Usage: scripts/tell.sh TEXT COMMAND...
text=$1
shift
begun=$(date +%s)
echo "$text"
"$@" &
child=$!
trap 'kill "$child" 2>/dev/null' HUP INT TERM
while sleep 4 >/dev/null 2>&1 && kill -0 $$ 2>/dev/null; do
    echo "  $text: $(($(date +%s) - begun)) s"
done &
wait "$child"
status=$?
kill $! 2>/dev/null
exit "$status"
