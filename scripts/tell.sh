#!/bin/sh
# Run a command that says nothing, and say every four seconds that it goes on: TEXT COMMAND...
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
