#!/bin/sh
# The probe: prints the facts of this node. Needs sh and coreutils only, and changes nothing.
# root: prefix of /proc, /sys and /dev, for tests with recorded machines.
set -u
root=${root:-}
LC_ALL=C
export LC_ALL

# fact KEY COMMAND...: print the output of a command, which may take 5 seconds, as the fact KEY.
fact() {
    key=$1
    shift
    text=$(timeout 5 "$@" 2>/dev/null)
    printf '## %s %d\n' "$key" "$?"
    printf '%s\n' "$text" | sed 's/^/ /'
}

# file_fact KEY FILE: print the content of a file as the fact KEY.
file_fact() { fact "$1" cat -- "$root$2"; }

fact node uname -n
