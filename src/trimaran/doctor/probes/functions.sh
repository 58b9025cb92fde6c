#!/bin/sh
# The probe: prints the facts of this node. Needs sh, coreutils, grep and sed only, and changes nothing.
# Variables that the caller may set before:
#   root             prefix of /proc, /sys, /dev and /etc, for tests with recorded machines
#   apptainer        path of Apptainer, if it is not on PATH
#   gpu              vendor of the GPUs that the image uses: nvidia or amd
#   modules          environment modules that a job loads, separated by blanks
#   place_cache, place_scratch, place_local, place_data, place_runs
#                    folders: Trimaran's cache, the scratch and the local disk of the site file,
#                    the packed data (one line for each data set), the run directories
set -u
: "${root:=}" "${apptainer:=}" "${gpu:=}" "${modules:=}"
: "${place_cache:=}" "${place_scratch:=}" "${place_local:=}" "${place_data:=}" "${place_runs:=}"
# Administration commands such as ldconfig are in folders that a user's PATH may lack.
PATH=${PATH:-/usr/local/bin:/usr/bin:/bin}:/usr/local/sbin:/usr/sbin:/sbin
LC_ALL=C
export LC_ALL PATH

# value KEY TEXT: print a text as the fact KEY. Each line begins with a blank.
value() {
    printf '## %s 0\n' "$1"
    printf '%s\n' "$2" | sed 's/^/ /'
}

# fact KEY PROGRAM ARGUMENT...: print the output of a program, which may take 5 seconds, as the fact
# KEY. The status is 127 if the program is missing, and 124 if it took too long: `timeout` says 137 if
# the program ignored SIGTERM and was killed.
fact() {
    key=$1
    shift
    if ! command -v -- "$1" >/dev/null; then
        printf '## %s 127\n' "$key"
        return
    fi
    text=$(timeout -k 1 5 "$@" 2>/dev/null </dev/null)
    status=$?
    if [ "$status" = 137 ]; then status=124; fi
    printf '## %s %d\n' "$key" "$status"
    printf '%s\n' "$text" | sed 's/^/ /'
}

# file_fact KEY FILE: print the content of a file below $root as the fact KEY.
file_fact() {
    if [ -r "$root$2" ] && [ ! -d "$root$2" ]; then
        fact "$1" cat -- "$root$2"
    else
        printf '## %s 1\n' "$1"
    fi
}

# load_modules: load the environment modules of the site file, as a job does. `module` is a shell
# function that the profile of a login shell defines.
load_modules() {
    for file in /etc/profile.d/lmod.sh /etc/profile.d/modules.sh /usr/share/modules/init/sh; do
        if ! command -v module >/dev/null && [ -r "$file" ]; then
            set +u
            # shellcheck source=/dev/null
            . "$file"
        fi
    done
    set +u
    # shellcheck disable=SC2086 # names of modules have no blanks: the site file is checked
    command -v module >/dev/null && module load $modules
}

# Slurm may name a node otherwise than its operating system.
value node "${SLURMD_NODENAME:-$(uname -n)}"
if [ -n "$modules" ]; then
    if load_modules >/dev/null 2>&1 </dev/null; then value modules loaded; else value modules failed; fi
    set -u
fi
