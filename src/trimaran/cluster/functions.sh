# shellcheck shell=sh
# The functions of a job's script, job.sh. This file is the same for every job and every batch
# system. job.sh checks the SHA-256 of this file, reads it, and calls `main`, which is at the end
# of the first part. The second part is for jobs of several trainings, and for runs that start from
# each other. The third part has functions that jobs share with the run.sh of a bundle.
#
# The batch system runs job.sh without arguments. That process starts all other processes, by srun,
# mpirun or jsrun:
#   job.sh node LINK SHA256  once on each node: checks the node, and copies image and data
#   job.sh task WORD...      runs one rank (or all ranks of a node, where torchrun starts them)
#   job.sh mps               once on each node: runs NVIDIA's Multi-Process Service
#   job.sh clear             once on each node: removes the copies and the compiled code
#
# A job may also run several trainings on one node. See the part on such jobs below.
#
# A run may need several jobs, or several starts of one job. Each start that gets as far as its
# nodes is a link of the run's chain, and has its own files job/link-NNNN.json and
# job/link-NNNN.end.json. All paths below are relative to the run directory.
#
# job.sh sets these variables; one that does not apply to the job is empty:
: "${scheduler?}"        # slurm, pbs or lsf
: "${job?}"              # number of the job
: "${out?}"              # the run directory, which is the working directory
: "${functions_sha256?}" # SHA-256 of this file
: "${image?}"            # path of the image, and the SHA-256 of the file:
: "${image_sha256?}"
: "${image_machine?}"    # architecture for which the image was built, as `uname -m` prints it
: "${engine?}"           # path of Apptainer on the nodes, from the site file
: "${gpu_device?}"       # file in /dev that shows that the driver of the image's GPUs is loaded
: "${nodes?}"            # number of nodes
: "${tasks_per_node?}"   # tasks that `starter` starts on each node
: "${starter?}"          # program that starts the tasks: srun, mpirun or jsrun
: "${ranks_told?}"       # yes: each task is one rank, and `starter` gives it rank and world size
: "${srun_mpi?}"         # value of srun's option --mpi= that the ranks need
: "${resume?}"           # option of the app with which it continues from its newest checkpoint
: "${all_ranks?}"        # option of the app with the number of ranks that share the work
: "${min_nodes?}"        # fewest nodes with which the job continues after nodes were lost
: "${restarts?}"         # yes: torchrun itself continues without lost nodes
: "${timer_seconds?}"    # seconds after which the job signals itself, if its batch system does not
: "${mps?}"              # number of ranks that share a GPU by NVIDIA's Multi-Process Service
: "${local_storage?}"    # folder on the disk of each node, for copies
: "${stage_data?}"       # yes: not only the image, but also data sets are copied to `local_storage`
: "${devices?}"          # network devices that the site file names
# Some jobs also set these variables; job.sh unsets them first, so that variables of the user have
# no effect. From the site file:
: "${kept_caches:=}"      # folder that keeps compiled code from job to job; empty: each job removes it
# From the profile of the cluster's fabric, if it is named and the job has several nodes:
: "${fabric:=}"           # name of the fabric
: "${fabric_missing:=}"   # refuse or warn, if a node lacks what the fabric needs
: "${fabric_settings:=}"  # NAME=VALUE;...: variables of the ranks
: "${fabric_devices:=}"   # patterns of devices, of which a node needs one
: "${fabric_libraries:=}" # NAME PATTERN...;...: libraries of the node for the container
: "${fabric_contained:=}" # names of libraries that the image must have
# In a chain of recipes, and if several trainings share the job:
: "${initial:=}"         # the checkpoint that this run starts from and another run writes before
: "${next_run:=}"        # directory of a run that this job queues when it has completed
: "${next_initial:=}"    # the checkpoint of this run that the next run starts from
: "${trainings:=}"       # number of trainings that share the job; empty: one
#
# job.sh also defines these functions:
#   start_ranks DO WORD...  DO (exec, command or shell_line) gets the command that starts all tasks
#   start_nodes DO WORD...  the same for one task on each node, which runs `job.sh WORD...`
#   rank_command DO...      DO gets the command of a rank: variables for `env -i`, then words
#   each_data DO            DO gets name, folder and SHA-256 of a data set; one call per data set
#   each_training DO        DO gets GPUs and directory of a training; one call per training
#   load_modules            calls `load` with the site's modules

# ---------------------------------------------------------------- what every process of a job needs

program=job.sh
# Number of this task, which is that of its rank or node, from Open MPI, Slurm or PMIx.
rank=${OMPI_COMM_WORLD_RANK:-${SLURM_PROCID:-${PMIX_RANK:-0}}}
# mpirun starts its daemons with srun, which passes the environment on only with this variable.
if [ "$scheduler $starter" = "slurm mpirun" ]; then export SLURM_EXPORT_ENV=ALL; fi
# The folder for this job's copies on a node. It has the node's name, because in tests several nodes
# are one machine.
staged=
if [ -n "$local_storage" ]; then
    staged=$local_storage/trimaran-$(printf '%s' "$job" | tr -c 'A-Za-z0-9\n' _)-${SLURMD_NODENAME:-node}
fi
# The folder for code that frameworks compile while they run, on the disk of each node: several nodes
# must not share it, because the libraries lock and rename files. In the container it is /caches.
caches=${local_storage:-${TMPDIR:-/tmp}}/trimaran-caches-$(printf '%s' "$job" | tr -c 'A-Za-z0-9\n' _)-${SLURMD_NODENAME:-$(uname -n)}
if [ -n "$kept_caches" ]; then caches=$kept_caches/${SLURMD_NODENAME:-$(uname -n)}; fi
visited= # yes: the nodes have a folder for compiled code, which this job removes
# The folder with the pipes by which the ranks of a node use NVIDIA's Multi-Process Service.
mps_folder=
if [ -n "$mps" ]; then
    mps_folder=${TMPDIR:-/tmp}/trimaran-mps-$(printf '%s' "$job" | tr -c 'A-Za-z0-9\n' _)
fi
# Fast networks: the folder in which Linux lists the cards, and the devices that network libraries
# open. The first line is for InfiniBand, RoCE and Omni-Path, the second for Slingshot.
fabrics='/sys/class/infiniband /dev/infiniband /dev/hfi1*
/sys/class/cxi /dev/cxi*'

# The pattern of log texts in which libraries name the network that they use: NCCL and RCCL, then
# UCX, then Open MPI, then the app's record of its backend.
carrier='RCCL version|Using network [A-Za-z0-9_. -]+|via NET/[A-Za-z0-9_. -]+/[0-9]+'
carrier="$carrier|NET/OFI Selected [Pp]rovider is [A-Za-z0-9_;-]+|NET/Socket : Using \\[0\\][A-Za-z0-9_.-]+"
carrier="$carrier|NET/IB : (No device found|Using( \\[[0-9]+\\][A-Za-z0-9_.-]+:[0-9]+/[A-Za-z]+)+)"
carrier="$carrier|((self|intra-node|inter-node) cfg#[0-9]+|ep_cfg\\[[0-9]+\\]):? ?[a-z_]+\\([A-Za-z0-9_/:. -]+\\)"
carrier="$carrier|select: component (ob1|cm|ucx|ofi|psm|psm2|portals4) selected|Using [a-z0-9]+ btl for send"
carrier="$carrier|mtl:ofi:prov: [A-Za-z0-9_;-]+|\"backend\": \"(gloo|mpi|nccl)\""

# ------------------------------------------------------------------------ files of the run directory
# Other users may also write into it. Therefore the job follows no link that they have put into it.

# foreign: print the name of one file by which the job would write or read outside of the run
# directory.
foreign() {
    {
        set +e # find fails if a file is missing
        find job \( -type d ! -path job \) -o \( ! -type d ! -type f \)
        find job/ids log.txt \( ! -type f -o -links +1 \)
        find . ! -type d ! -type f ! -type l
        # shellcheck disable=SC2016 # the inner shell has these variables
        find . -type l -exec sh -c 'for link; do
            case $(readlink -f -- "$link") in "$0"/*) ;; *) printf "%s\n" "$link" ;; esac
        done' "$(pwd -P)" {} +
    } 2>/dev/null | head -n 1
}

# mine FOLDER: succeed if FOLDER is a folder of this user, and not a link to one.
mine() { [ -d "$1" ] && ! [ -L "$1" ] && [ "$(stat -c %u -- "$1")" = "$(id -u)" ]; }

# own FOLDER: make a folder that no other user can enter. Fail if another user has one there.
own() { { [ -d "$1" ] || mkdir -m 700 -- "$1" || [ -d "$1" ]; } && mine "$1"; }

# put FILE: write the standard input into FILE, so that other processes see either the old or the
# whole new content. The new file first has a random name, which nobody can occupy in advance. If
# FILE is a link, the link is replaced.
put() {
    fresh=$(mktemp job/.part-XXXXXX) || return 1
    if cat >"$fresh" && chmod +rw "$fresh" && mv -fT -- "$fresh" "$1"; then return; fi
    rm -f -- "$fresh"
    return 1
}

# right PATH DIGEST: succeed if a file, or the dataset.json of a folder, has this SHA-256. If DIGEST
# is empty, succeed if the file can be read.
right() {
    file=$1
    if [ -d "$file" ]; then file=$file/dataset.json; fi
    if [ -z "$2" ]; then
        [ -r "$file" ]
    else
        sum=$(sha256sum <"$file") && [ "${sum%% *}" = "$2" ]
    fi
}

# submitted: succeed if the two files of the script are those that were submitted. Sets `script` to
# the SHA-256 of job.sh in run.json, and `changed` to the error message for a file that differs.
submitted() {
    record=run.json
    if [ -n "$trainings" ]; then record=together.json; fi
    script=$(sed -nE 's/^ *"script_sha256": "([0-9a-f]{64})".*/\1/p' "$record")
    changed="job/job.sh is another script than the one that was submitted"
    if [ -z "$script" ] || ! right job/job.sh "$script"; then return 1; fi
    changed="job/functions.sh is another file than the one that was submitted"
    right job/functions.sh "$functions_sha256"
}

# ----------------------------------------------------------------------------------- batch systems

# title: print the name of the batch system, for messages.
title() {
    case $scheduler in
    slurm) printf Slurm ;;
    pbs) printf PBS ;;
    lsf) printf LSF ;;
    esac
}

# active JOB: succeed if the batch system reports that a job runs.
active() {
    case $scheduler in
    slurm) [ -n "$(squeue --noheader --states=RUNNING --jobs="$1" 2>/dev/null)" ] ;;
    pbs) qstat -f "$1" 2>/dev/null | grep -q 'job_state = R' ;;
    lsf) [ "$(bjobs -noheader -o stat "$1" 2>/dev/null)" = RUN ] ;;
    esac
}

# ended JOB: succeed if the batch system reports that a job of this user has ended. If the batch
# system does not answer, the job counts as not ended.
ended() {
    case $scheduler,$1 in
    pbs,[0-9]*) ;;
    slurm, | lsf, | pbs,* | *,*[!0-9]*) return 1 ;;
    esac
    case $scheduler in
    slurm)
        known=$(timeout 60 squeue --noheader --user="$(id -u)" --states=all --format='%i %T' 2>/dev/null) || return 1
        case $(printf '%s\n' "$known" | sed -n "s/^$1 //p") in
        '' | BOOT_FAIL | CANCELLED | COMPLETED | DEADLINE | FAILED | NODE_FAIL | OUT_OF_MEMORY | TIMEOUT) ;;
        *) return 1 ;;
        esac
        ;;
    pbs)
        case $(timeout 60 qstat -f "$1" 2>&1 || :) in
        *"job_state = F"* | *"Unknown Job"* | *"has finished"*) ;;
        *) return 1 ;;
        esac
        ;;
    lsf)
        case $(timeout 60 bjobs -noheader -o stat "$1" 2>&1 || :) in
        DONE | EXIT | *"is not found"*) ;;
        *) return 1 ;;
        esac
        ;;
    esac
}

# again: queue this job once more. If only an operator may do that (PBS), or the site forbids it
# (Slurm), queue another job that starts after the end of this job.
again() {
    case $scheduler in
    slurm)
        scontrol requeue "$job" ||
            queue sbatch --parsable --dependency="afterany:$job" --chdir="$out" job/job.sh
        ;;
    pbs) queue qsub -W depend="afterany:$job" job/job.sh ;;
    lsf) brequeue -r "$job" ;;
    esac
}

# queue COMMAND WORD...: run a command that queues another job, and note the number of that job.
# A regular expression finds the number, because at some sites the command prints further lines. If
# no number is found, `trimaran status` finds the job by its name.
queue() {
    asked=$1
    now | put job/queueing || :
    answer=$("$@") || return 1
    case $scheduler in
    slurm) set -- 'Submitted batch job ([0-9]+)( .*)?' '([0-9]+)(;[A-Za-z0-9_.-]+)?' ;;
    lsf) set -- '.*\bJob <([0-9]+)> is submitted\b.*' ;;
    *)
        set -- '([0-9]+(\[[0-9]*\])?\.[A-Za-z][A-Za-z0-9_.-]*)' \
            '([0-9]+(\[[0-9]*\])?(\.[A-Za-z][A-Za-z0-9_.-]*)?)'
        ;;
    esac
    for form; do
        next=$(printf '%s\n' "$answer" | tr -d '\r' | sed -nE "s/^[[:blank:]]*${form}[[:blank:]]*\$/\\1/p" | sort -u)
        if [ -n "$next" ]; then break; fi
    done
    case $next in
    '' | *[!A-Za-z0-9_.[\]-]*) printf 'job.sh: another job is queued; %s names no number: %s\n' "$asked" "$answer" >>log.txt ;;
    *) note "$next" && rm -f job/queueing ;;
    esac
}

# note NUMBER: add the number of a job to the list in job/ids.
note() { { if [ -f job/ids ]; then cat job/ids; fi; printf '%s\n' "$1"; } | put job/ids; }

# noted: add the number of this job to job/ids, if the process that queued the job was killed before
# it could add the number.
noted() {
    if [ -e job/queueing ]; then
        note_own "$job"
        rm -f job/queueing
    fi
}

# warn_ranks: send the ranks the signal at which the app writes a checkpoint and ends. A process
# that does not handle SIGURG ignores it. That matters, because Slurm also signals torchrun and the
# process that mounts the image, and the app cannot work without its image. jsrun passes SIGUSR1 on.
warn_ranks() {
    case $starter in
    mpirun) kill -URG "$child" ;;
    jsrun) kill -USR1 "$child" ;;
    setsid) kill -URG "-$child" ;; # all processes of one training, see start_ranks below
    *) [ -s job/.step ] && scancel --signal=URG "$job.$(cat job/.step)" ;;
    esac
}

# said JOB: print the lines of the log that begin with the start of this link of JOB (default: this
# job).
said() { sed -n "\\|^job.sh: job ${1:-$job}, link $number: |,\$p" log.txt; }

# cause CODE: print the exit status of the task that was the first to fail. mpirun and jsrun exit
# with it. srun exits with the highest status, which may be that of a task that srun killed later.
cause() {
    first=
    case $scheduler,$1 in
    slurm,0 | slurm,75 | pbs,* | lsf,*) ;;
    *) first=$(said | sed -nE 's/^srun: error: .*: Exited with exit code ([0-9]+)$/\1/p' | head -n 1) ;;
    esac
    printf '%s' "${first:-$1}"
}

# preempted CODE: succeed if Slurm has ended the ranks, and neither srun nor the user has. The job
# must then queue itself again: Slurm regards it as ended, because it ended before Slurm killed it.
# PBS and LSF themselves restart a job that they have killed.
preempted() {
    [ "$scheduler" = slurm ] && [ "$1" -ne 0 ] && [ -z "$warned" ] &&
        said | sed -n '/CANCELLED AT/{p;q;};/_step_signal: Terminating/q;/srun: .* aborted/q' | grep -q .
}

# explain: print a likely reason for a failed link and its remedy, if a reason is known.
explain() {
    case $srun_mpi in
    '' | pmix) ;;
    *)
        if said | grep -q 'MPI_Init'; then
            printf 'MPI does not start under srun --mpi=%s: the images have Open MPI, which' "$srun_mpi"
            printf ' needs pmix (mpi in the site file)'
        fi
        ;;
    esac
}

# meeting: print the folder of the files by which Slurm's PMIx connects the ranks of this node.
# Other launchers name their folder in PMIX_SERVER_TMPDIR.
meeting() {
    if [ "$scheduler" != slurm ]; then return; fi
    place=${SLURM_PMIX_TMPDIR:-$(replace "$(replace "${TRIMARAN_TMPFS:-/tmp}" %n "${SLURMD_NODENAME-}")" %h "$(uname -n)")}
    printf '%s/spmix_appdir_%s_%s.%s' "$place" "$(id -u)" "$SLURM_JOB_ID" "$SLURM_STEP_ID"
}

# check_srun: end the job if srun lacks the value of --mpi= that the ranks need to start MPI.
check_srun() {
    if [ -z "$srun_mpi" ]; then return; fi
    case " $(srun --mpi=list 2>&1 | tr '\n\t' '  ') " in
    *" $srun_mpi "*) ;;
    *) stopped 64 "srun has no --mpi=$srun_mpi here" "\`srun --mpi=list\` names what it has: mpi in the site file" ;;
    esac
}

# fewer CODE: succeed if the ranks failed because a node was lost, and enough nodes are left. Sets
# `lost` to the names of the lost nodes, `alive` to the number of the other nodes, and `left` to the
# number of nodes with which the run continues: a divisor of the number of requested nodes.
fewer() {
    case $1 in
    0 | 2 | 3 | 4 | 70 | 74 | 75) return 1 ;; # exit codes of the app itself
    esac
    before_that=$lost
    listen
    count=0
    for host in $(scontrol show hostnames "$SLURM_JOB_NODELIST"); do
        case ",$lost," in
        *",$host,"*) continue ;;
        esac
        if timeout 25 srun --export=ALL --overlap --nodes=1 --ntasks=1 --nodelist="$host" --mpi=none true 2>/dev/null; then
            count=$((count + 1))
        else
            lost="$lost${lost:+,}$host"
        fi
    done
    if [ "$lost" = "$before_that" ]; then return 1; fi
    alive=$count
    left=$nodes
    while [ "$left" -gt "$count" ] || [ $((all_nodes % left)) -ne 0 ]; do
        left=$((left - 1))
        if [ "$left" -lt "$min_nodes" ]; then return 1; fi
    done
}

# --------------------------------------------------------------------- copies on the disk of a node
# The copies are in the folder $staged. A process that is killed cannot remove them.

# tidy: remove what this user's other jobs that have ended have left on this node.
tidy() {
    for other in "${local_storage:-${TMPDIR:-/tmp}}"/trimaran-*; do
        if [ "$other" = "$staged" ] || ! mine "$other" || ! [ -f "$other/.job" ]; then continue; fi
        if read -r whose <"$other/.job" && [ "$whose" != "$job" ] && ended "$whose" && rm -rf -- "$other"; then
            printf '%s: removed %s, the copies of job %s, which has ended\n' "$name" "$other" "$whose"
        fi
    done
}

# hold_caches: make the folder for compiled code. Without it, the code is in the run directory.
hold_caches() {
    if ! why=$({ mkdir -p -- "$(dirname -- "$caches")" && own "$caches"; } 2>&1) ||
        { [ -z "$kept_caches" ] && ! printf '%s\n' "$job" >"$caches/.job"; }; then
        printf 'job.sh: warning: %s: no folder %s for compiled code: %s\n' "$name" "$caches" "${why:-one of another user is there}"
    elif ! runs "$(mktemp "$caches/.try-XXXXXX" || :)"; then # several trainings may try at a time
        printf 'job.sh: warning: %s: no program can run in %s (noexec), the folder for compiled code\n' "$name" "$caches"
        drop_caches
    elif ! is_local "$caches"; then
        if [ -n "$kept_caches" ]; then setting=compiler_caches; else setting=local_storage; fi
        printf 'job.sh: warning: %s: compiled code is kept in %s, on a file system that may be on a network: %s\n' "$name" "$caches" "${kind:-unknown}"
        printf 'job.sh: hint: name a folder on the disk of the node in %s of the site file\n' "$setting"
    fi
}

# is_local FOLDER: succeed if the file system of FOLDER is on this node. Sets `kind` to its type, as
# stat names it. The list has the types of local file systems, because a list of the types of
# network file systems is never complete.
is_local() {
    kind=$(stat -f -c %T -- "$1" 2>/dev/null || :)
    case $kind in
    bcachefs | btrfs | ext2/ext3 | f2fs | jfs | overlayfs | ramfs | reiserfs | tmpfs | xfs | zfs) ;;
    *) return 1 ;;
    esac
}

# runs FILE: succeed if a program can run where FILE would be.
runs() {
    { printf '#!/bin/sh\n' >"$1" && chmod 700 "$1" && "$1"; } 2>/dev/null && found=yes || found=
    rm -f -- "$1"
    [ -n "$found" ]
}

# drop_caches: remove the compiled code of this job, unless the site keeps it.
drop_caches() {
    # Another training of this job may remove it at the same time.
    if [ -z "$kept_caches" ] && mine "$caches"; then rm -rf -- "$caches" || :; fi
}

# hold: make the folder for the copies of this job, with a file that has the number of the job.
hold() {
    if ! why=$({ mkdir -p -- "$local_storage" && own "$staged"; } 2>&1); then
        fail 74 "$name: no folder $staged: ${why:-one of another user is there}"
    fi
    if ! printf '%s\n' "$job" >"$staged/.job"; then fail 74 "$name: cannot write into $staged"; fi
}

# copy_of NAME SOURCE DIGEST: set `copy` to the path of a copy on this node. Trainings that share a
# job also share copies, whose names therefore depend on the content.
copy_of() {
    copy=$staged/$1
    if [ -n "$share" ]; then
        sum=$3
        if [ -z "$sum" ]; then sum=$(printf '%s' "$2" | sha256sum); fi
        copy=$staged/$(printf '%.16s' "$sum")-${1%%[0-9.]*}
    fi
}

# stage NAME SOURCE DIGEST: copy a file or folder to NAME on this node, unless NAME has this DIGEST.
# The copy gets its name when it is complete, because a killed process leaves an incomplete copy.
stage() {
    copy_of "$@"
    part=$staged/.${copy##*/}
    if [ -e "$copy" ] && right "$copy" "$3"; then return; fi
    rm -rf -- "$copy" "$part"
    if ! why=$({ cp -RL -- "$2" "$part" && mv -- "$part" "$copy"; } 2>&1); then
        rm -rf -- "$part"
        fail 74 "$name: no copy of $2 in $staged: $(printf '%s' "${why:-cp was killed}" | tail -n 1)"
    fi
    printf '%s: copied %s to %s\n' "$name" "$2" "$copy"
}

# use_copy NAME SOURCE DIGEST: let the rank read a data set from its copy, if there is a copy. NAME
# is the variable of job.sh with the folder of the data set, such as data1.
use_copy() {
    copy_of "$@"
    if [ -e "$copy" ]; then eval "$1=\$copy"; fi
}

# attend WORD...: run a rank. If a signal ends the rank, and no other rank of the node still reads
# the copies, remove them. `job.sh clear` cannot do this: a batch system that ends a job starts no
# more processes on its nodes.
attend() {
    mark=$(mktemp "$staged/.rank-XXXXXX")
    rank_process=
    told=
    trap 'signalled=yes; told=yes; pass TERM' TERM INT HUP
    trap 'signalled=yes; pass URG' URG
    trap 'signalled=yes; pass USR1' USR1
    env -i "$@" &
    rank_process=$!
    if [ -n "$told" ]; then pass TERM; fi
    await "$rank_process"
    rm -f -- "$mark"
    if [ -n "$told" ]; then
        for mark in "$staged"/.rank-*; do if [ -e "$mark" ]; then exit "$code"; fi; done
        rm -rf -- "$staged"
        drop_caches
    fi
    exit "$code"
}

# pass SIGNAL: pass a signal on to the rank. Some batch systems signal only the process of job.sh.
pass() { if [ -n "$rank_process" ]; then kill -s "$1" "$rank_process" 2>/dev/null || :; fi; }

# ----------------------------------------------------------------------------------- on each node

# ready: find Apptainer, and the copies of image and data on this node.
ready() {
    load_modules || fail 69 "$why"
    if ! [ -x "$engine" ]; then engine=$(find_engine); fi
    # shellcheck disable=SC2034 # the command of a rank has it in PATH
    engine_folder=$(dirname -- "$engine")
    machine_flags
    if [ -n "$staged" ]; then
        copy_of image.sif "$image" "$image_sha256"
        if [ -e "$copy" ]; then image=$copy; fi
    fi
    if [ -n "$stage_data" ]; then each_data use_copy; fi
}

# load MODULE...: load modules of the site. If that fails, set `why` to the reason.
load() {
    for file in /etc/profile.d/lmod.sh /etc/profile.d/modules.sh /usr/share/modules/init/sh; do
        if ! command -v module >/dev/null && [ -r "$file" ]; then
            set +u
            # shellcheck source=/dev/null
            . "$file"
        fi
    done
    if ! command -v module >/dev/null; then
        why="$(uname -n) has no 'module' command: name the path of Apptainer in the site file"
        return 1
    fi
    why="$(uname -n): module load $* fails"
    module load "$@" || return 1
    set -u
}

# check_data NAME FOLDER DIGEST: end with an error if a data set differs from the submitted one.
check_data() {
    if right "$2" "$3"; then return; fi
    if [ -n "$3" ]; then fail 65 "$name: other data than those submitted: $2"; fi
    fail 65 "$name: the data are not there: $2"
}

# any PATH...: succeed if one of the files or folders exists.
any() {
    for one; do if [ -e "$one" ]; then return; fi; done
    return 1
}

# check_fabric: warn if this node has a card of a fast network but no device for it. The ranks would
# then use TCP sockets without a message.
check_fabric() {
    while read -r place expected; do
        # shellcheck disable=SC2086 # each word is a pattern to expand
        if any "$place"/* && ! any $expected; then
            printf 'job.sh: warning: %s: %s lists a network card, but there is no %s: the ranks may take sockets; the site file can name its devices\n' "$name" "$place" "$expected"
        fi
    done <<END
$fabrics
END
    set -f # split `devices` without expanding it
    # shellcheck disable=SC2086
    set -- $devices
    set +f
    for pattern; do
        # shellcheck disable=SC2086 # a pattern to expand
        any $pattern || printf 'job.sh: warning: %s: no %s, which the site file names: the ranks do not see it\n' "$name" "$pattern"
    done
}

# each_library DO: call DO with name and patterns of each library of the node that the fabric needs.
# The shell expands the patterns.
each_library() {
    visit=$1
    blanks=$IFS
    IFS=';'
    set -f
    # shellcheck disable=SC2086 # split it
    set -- $fabric_libraries
    set +f
    IFS=$blanks
    for item; do
        # shellcheck disable=SC2086 # a name, then patterns to expand
        "$visit" $item
    done
}

# check_library NAME PATH...: check that a library is at one of the paths. A library whose name
# follows a `-` may be missing.
check_library() {
    library=$1
    shift
    case $library in -*) return ;; esac
    any "$@" || lacking "no $library in $*"
}

# lacking WHAT: end with an error, or only warn (`fabric_missing`), because this node or the image
# lacks something that the fabric needs.
lacking() {
    if [ "$fabric_missing" = warn ]; then
        printf 'job.sh: warning: %s: fabric %s: %s: the ranks may use TCP, with which no throughput passes\n' "$name" "$fabric" "$1"
        return
    fi
    fail 69 "$name: fabric $fabric: $1" \
        "the site file names the fabric, can name more folders (fabric_folders), or allow that it is missing (fabric_missing: warn)"
}

# in_image NAME...: print the names of the libraries that the image lacks.
in_image() {
    # shellcheck disable=SC2016 # the inner shell has these variables
    env -i "PATH=$engine_folder:$PATH" "$engine" --quiet exec --containall --no-home --cleanenv \
        ${userns:+--userns} --pwd / "$image" sh -c 'for name; do
            found=
            for place in /lib /lib64 /usr/lib /usr/lib64 /usr/local/lib /lib/*-linux-gnu /usr/lib/*-linux-gnu; do
                if [ -e "$place/$name" ]; then found=yes; fi
            done
            if [ -z "$found" ]; then printf "%s " "$name"; fi
        done' sh "$@"
}

# check_profile: check that this node and the image have the devices and libraries of the fabric.
check_profile() {
    # shellcheck disable=SC2086 # patterns to expand
    if [ -n "$fabric_devices" ] && ! any $fabric_devices; then lacking "no device $fabric_devices"; fi
    each_library check_library
    # shellcheck disable=SC2086 # names
    if [ -n "$fabric_contained" ]; then absent=$(in_image $fabric_contained); else absent=; fi
    for library in $absent; do
        lacking "no $library in the image, in its folders of libraries"
    done
}

# check_node LINK SHA256: check this node before ranks are started, copy image and data to its disk,
# and write the facts of the node into the file LINK.RANK. SHA256 is the hash of the submitted
# job.sh.
check_node() {
    name=$(uname -n)
    if [ -z "$share" ]; then
        # If the job is ended now, no other process on this node removes an incomplete copy.
        if [ -n "$staged" ]; then trap 'rm -rf -- "$staged"; drop_caches; exit 143' TERM INT HUP; fi
        tidy
    fi
    if ! right job/job.sh "$2"; then
        fail 65 "$name: job/job.sh is another script than the one that was submitted"
    fi
    if [ "$(uname -m)" != "$image_machine" ]; then
        fail 69 "$name: the node is $(uname -m), but the image is for $image_machine" \
            "correct architecture of the cluster in the site file, and submit the recipe again"
    fi
    if ! [ -r "$image" ]; then fail 66 "$name: the image $image is not there"; fi
    each_data check_data
    if [ -n "$staged" ]; then
        if [ -n "$share" ]; then wait_for_copies; else hold; fi
        stage image.sif "$image" "$image_sha256"
        if [ -n "$stage_data" ]; then each_data stage; fi
        exec 9>&- # releases the lock: another training may copy
    fi
    hold_caches
    ready
    if ! right "$image" "$image_sha256"; then
        fail 65 "$name: $image has changed since it was submitted: sha256:${sum%% *}"
    fi
    if [ -n "$stage_data" ]; then each_data check_data; fi
    if ! try=$(mktemp job/.node-XXXXXX) || ! rm -f -- "$try"; then
        fail 73 "$name: cannot write into the run directory"
    fi
    if ! env -i "PATH=$engine_folder:$PATH" "$engine" --quiet exec --containall --no-home --cleanenv \
        ${userns:+--userns} --pwd / "$image" true >&2; then
        fail 69 "$name: Apptainer cannot start a container here" "$(obstacle)"
    fi
    if [ -n "$fabric" ]; then check_profile; fi
    if [ "$nodes" -gt 1 ]; then check_fabric; fi
    host_facts "$share_gpus"
    put "$1.$rank" <<END
{"hostname": $hostname, "os": $os, "kernel": $kernel, "architecture": $architecture, "processor": $processor, "cores": $cores, "memory_gib": $memory_gib, "cpu_flags": $cpu_flags, "accelerators": $accelerators, "python": null}
END
}

# serve_mps: run NVIDIA's Multi-Process Service on this node until a signal ends it. With the
# service, several ranks compute on one GPU at the same time.
serve_mps() {
    if ! command -v nvidia-cuda-mps-control >/dev/null; then
        fail 69 "$(uname -n): no nvidia-cuda-mps-control on PATH" "the recipe shares GPUs by it"
    fi
    if ! own "$mps_folder"; then
        fail 73 "$(uname -n): $mps_folder is not a folder of this user"
    fi
    CUDA_MPS_PIPE_DIRECTORY=$mps_folder CUDA_MPS_LOG_DIRECTORY=$mps_folder
    export CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
    trap 'echo quit | nvidia-cuda-mps-control; wait; rm -rf -- "$mps_folder"; exit' TERM INT
    nvidia-cuda-mps-control -f &
    wait
}

# ------------------------------------------------------------------------------------ for each rank

# show PATH [TARGET]: add a file or folder of the host to `mounts`, the mounts of the rank's
# container, where it has the path TARGET, or else the same path.
show() {
    place=$(replace "$1" '"' '""')
    mount="type=bind,\"source=$place\",\"destination=${2:-$place}\""
    case "
$mounts
" in
    *"
$mount
"*) return ;; # it is in the list
    esac
    mounts="${mounts:+$mounts
}$mount"
}

# bind_library NAME PATH...: add the first path that exists to `libraries`, the comma-separated list
# of libraries of the node that the rank's container gets.
bind_library() {
    shift
    for place; do
        case $place in *,*) continue ;; esac
        if [ -e "$place" ]; then
            libraries="$libraries${libraries:+,}$place"
            return
        fi
    done
}

# run_task WORD...: run one rank, whose command ends with the words. Of the environment, the rank
# gets only the variables of its launcher, such as rank and world size, and the variables of job.sh.
run_task() {
    ready
    more=$#
    if [ "$rank" -eq 0 ]; then printf '%s' "${SLURM_STEP_ID-}" | put job/.step; fi
    if [ -n "$ranks_told" ]; then
        for name in $(env | sed -nE 's/^((SLURM|PMI|PMIX|OMPI|JSM)_[A-Za-z0-9_]*)=.*/\1/p'); do
            eval "value=\${$name-}"
            set -- "$@" "APPTAINERENV_$name=$value"
        done
    fi
    if [ -n "$fabric" ]; then
        libraries=
        each_library bind_library
        # Apptainer puts these libraries into a folder of the container that LD_LIBRARY_PATH names.
        if [ -n "$libraries" ]; then set -- "$@" "APPTAINER_CONTAINLIBS=$libraries"; fi
        rest=$fabric_settings
        while [ -n "$rest" ]; do
            set -- "$@" "APPTAINERENV_${rest%%;*}"
            case $rest in *\;*) rest=${rest#*;} ;; *) rest= ;; esac
        done
    fi
    mounts=
    if [ "$nodes" -gt 1 ]; then
        # With --containall, the container has no device of the host except GPUs. Without the
        # devices of the network, NCCL and UCX use TCP sockets.
        patterns=
        while read -r _ expected; do patterns="$patterns $expected"; done <<END
$fabrics
END
        for device in $patterns $devices; do
            if [ -e "$device" ]; then show "$device"; fi
        done
    fi
    if [ -n "$ranks_told" ]; then
        # The files in these folders connect the ranks of a node with each other and the launcher.
        for place in "${PMIX_SERVER_TMPDIR-}" "$(meeting)"; do
            if [ -d "$place" ]; then show "$place"; fi
        done
    fi
    if [ -n "$mps" ]; then show "$mps_folder"; fi
    if mine "$caches"; then show "$caches" /caches; fi
    if [ -n "$share_gpus" ]; then
        set -- "$@" "APPTAINERENV_$(gpu_variable)=$share_gpus"
    fi
    if [ -n "${HOME+set}" ]; then set -- "$@" "HOME=$HOME"; fi
    if [ -n "${LANG+set}" ]; then set -- "$@" "LANG=$LANG"; fi
    if [ -n "${TMPDIR+set}" ]; then set -- "$@" "TMPDIR=$TMPDIR"; fi
    if [ -n "${XDG_RUNTIME_DIR+set}" ]; then set -- "$@" "XDG_RUNTIME_DIR=$XDG_RUNTIME_DIR"; fi
    if [ -n "${SOURCE_DATE_EPOCH+set}" ]; then set -- "$@" "SOURCE_DATE_EPOCH=$SOURCE_DATE_EPOCH"; fi
    if [ -n "$mounts" ]; then set -- "$@" "APPTAINER_MOUNT=$mounts"; fi
    # With torchrun, all other agents connect to the agent of rank 0.
    # shellcheck disable=SC2034 # the command of a rank may have it
    if [ "$rank" -eq 0 ]; then is_host=true; else is_host=false; fi
    rank_command begin_rank "$more" "$@"
}

# begin_rank COUNT WORD...: replace this process by a rank. The first COUNT words become the last
# words of its command.
begin_rank() {
    more=$1
    shift
    while [ "$more" -gt 0 ]; do
        word=$1
        shift
        set -- "$@" "$word"
        more=$((more - 1))
    done
    if [ -n "$staged" ] && [ -z "$min_nodes" ]; then attend "$@"; fi
    exec env -i "$@"
}

# ------------------------------------------------------------------------------- links of the chain

# newest: print the step of the newest checkpoint, or 0 if there is none.
newest() {
    step=0
    for file in checkpoints/step-*.npz; do
        if [ -f "$file" ]; then
            step=${file##*-}
            step=${step%.npz}
            step=${step#"${step%%[!0]*}"}
        fi
    done
    printf '%s' "${step:-0}"
}

# carriers JOB: print the networks that the libraries used in this link of JOB, as their logs show:
# each different text once, with the number of its lines, without names and addresses of nodes.
carriers() {
    {
        said "${1-}" | head -c 67108864
        for file in fabric/*; do
            if [ -f "$file" ] && ! [ -L "$file" ]; then head -c 4194304 -- "$file"; fi
        done
        if [ -f environment.json ] && ! [ -L environment.json ]; then head -c 4194304 environment.json; fi
    } 2>/dev/null | tr -d '\000' | fold -b -w 65536 | grep -aoE "$carrier" | sort | uniq -c | head -n 2000
}

# keep_carriers JOB: add the networks that this link of JOB used to fabric.log, if a fabric is named.
keep_carriers() {
    if [ -z "$fabric" ]; then return; fi
    { if [ -f fabric.log ] && ! [ -L fabric.log ]; then cat fabric.log; fi; carriers "$1"; } | put fabric.log || :
}

# end CODE REASON: record the end of this link in its file, and print it.
end() {
    keep_carriers "$job"
    put "$link.end.json" <<END
{"ended": "$(now)", "exit_status": $1, "step": $(newest), "reason": $(json "$2"), "files": $(hashes)}
END
    printf 'job.sh: exit status %s%s\n' "$1" "${2:+: $2}" | tee -a log.txt >&2
}

# refuse CODE REASON: record why no rank was started. The next link that starts ranks removes the
# record.
refuse() {
    put job/refused.json <<END
{"job": $(json "$job"), "exit_status": $1, "reason": $(json "$2")}
END
}

# stopped CODE LINE...: end the job before any rank was started; the first line is the reason.
stopped() {
    code=$1
    shift
    printf 'job.sh: %s\n' "$@" >>log.txt
    refuse "$code" "$1" || :
    fail "$code" "$@"
}

# begin: begin a new link, unless another job of this run is running. Sets `number`, `link` (the
# beginning of the paths of its files), `began` (the time) and `before` (the step of the
# checkpoint).
begin() {
    number=0
    for file in job/link-????.json; do if [ -e "$file" ]; then number=$((number + 1)); fi; done
    if [ "$number" -gt 0 ]; then
        link=job/link-$(printf %04d "$number")
        other=$(sed -nE '1s/.*"job": "([^"]+)".*/\1/p' "$link.json")
        if ! [ -e "$link.end.json" ] && [ -n "$other" ] && [ "$other" != "$job" ] && active "$other"; then
            stopped 73 "the job $other runs in $out: this one ends"
        fi
        # A killed link could not record its networks itself, and `train` removes its logs.
        if ! [ -e "$link.end.json" ] && [ -n "$other" ]; then keep_carriers "$other"; fi
    fi
    number=$((number + 1))
    link=job/link-$(printf %04d "$number")
    if ! (set -C && : >"$link.json"); then stopped 73 "another job began in $out"; fi
    before=$(newest)
    began=$(now)
}

# stalled: succeed if the previous link began at the step of the newest checkpoint, too.
stalled() {
    [ "$number" -gt 1 ] || return 1
    one=job/link-$(printf %04d $((number - 1))).json
    [ "$(sed -nE '1s/.*"step": ([0-9]+).*/\1/p' "$one")" = "$(newest)" ]
}

# futile: succeed if this job has begun twice from the current step of the run. A batch system that
# ends a job and starts it again does not consider checkpoints, and would repeat this endlessly.
futile() {
    same=0
    for file in job/link-????.json; do
        one=$(sed -nE '1s/.*"job": "([^"]+)".*"step": ([0-9]+).*/\1 \2/p' "$file" 2>/dev/null)
        if [ "$one" = "$job $(newest)" ]; then same=$((same + 1)); else same=0; fi
    done
    [ "$same" -ge 2 ]
}

# ------------------------------------------------------------------------------------------ signals

# listen: handle the signals of the batch system from now on. SIGUSR1 comes before the time limit
# and sets `warned`. SIGTERM, SIGINT and SIGHUP ask the job to end and set `told`.
listen() {
    trap 'signalled=yes; warned=yes; tell' USR1
    if [ -n "$share" ]; then trap 'signalled=yes; warned=yes; tell' URG; fi
    trap 'signalled=yes; told=yes; stop' TERM INT HUP
}

# tell: make the ranks write a checkpoint and end. The signal is repeated until they have ended,
# because a rank that is just starting does not react to it yet. Before the ranks are started, `tell`
# does nothing: `train` calls it again.
tell() {
    if [ -z "$ranks" ] || [ -n "$teller" ]; then return; fi
    (
        pause=1
        while kill -0 "$ranks" 2>/dev/null; do
            warn_ranks || :
            sleep "$pause"
            if [ "$pause" -lt 16 ]; then pause=$((pause * 2)); fi
        done
    ) >>log.txt 2>&1 &
    teller=$!
}

# stop: end the process that this script waits for.
stop() { if [ -n "$child" ]; then kill -TERM "$child" 2>/dev/null || :; fi; }

# await PROCESS: wait for a process, and set `code` to its exit status. A signal interrupts `wait`,
# but the process may go on, for example to write its checkpoint.
await() {
    code=
    while :; do
        signalled=
        found=0
        wait "$1" || found=$?
        # 127: an earlier `wait`, which a signal interrupted, has returned the status already.
        if [ "$found" -eq 127 ] && [ -n "$code" ]; then break; fi
        code=$found
        if [ -z "$signalled" ] || [ "$code" -le 128 ]; then break; fi
    done
}

# in_time: end this link if a signal has announced the end of the job before the ranks are started.
in_time() {
    if [ -n "$told" ]; then
        end 75 "it was told to end (SIGTERM) before a rank was started"
        exit 75
    fi
    if [ -n "$warned" ]; then
        end 75 "the time limit came before a rank was started; ask for more time, then trimaran resume"
        exit 75
    fi
}

# ------------------------------------------------------------------------------------ steps of a job

# look: check every node, and write the facts of all nodes into the file of this link. If the check
# of a node fails, the link is removed and the job ends.
look() {
    length=$(wc -c 2>/dev/null <log.txt) || length=0
    rm -f -- "$link".[0-9]*.failed # of a job that was killed here
    if [ -z "$kept_caches" ]; then visited=yes; fi
    start_nodes exec node "$link" "$script" >>log.txt 2>&1 &
    child=$!
    if [ -n "$told" ]; then stop; fi
    await "$child"
    child=
    if [ "$code" -ne 0 ]; then
        tail -n 20 log.txt >&2
        why=$(cat -- "$link".[0-9]*.failed 2>/dev/null | sed -nE '/^[0-9]{1,3} ./p' | head -n 1)
        rm -f -- "$link.json" "$link".[0-9]*
        if [ -n "$why" ]; then
            code=${why%% *}
            why=${why#* }
        else
            why=$(tail -c +$((length + 1)) log.txt | sed -nE '/^job\.sh: warning: /d; s/^job\.sh: //p' | head -n 1)
        fi
        if [ -n "$told" ]; then why="it was told to end (SIGTERM) before a rank was started"; fi
        refuse "$code" "${why:-$(tail -n 1 log.txt)}" || :
        exit "$code"
    fi
    # The node of rank 0, to which the other ranks connect. This script may run on another node.
    TRIMARAN_FIRST=$(sed -nE 's/.*"hostname": "([^"]+)".*/\1/p' "$link.0")
    export TRIMARAN_FIRST
    hosts=
    one=0
    while [ "$one" -lt "$nodes" ]; do
        hosts="$hosts${hosts:+, }$(cat "$link.$one")"
        rm -f -- "$link.$one"
        one=$((one + 1))
    done
    put "$link.json" <<END
{"number": $number, "job": $(json "$job"), "started": "$began", "step": $before, "hosts": [$hosts]$started_from}
END
    rm -f job/refused.json
}

# train: start the ranks, and wait until they end. Sets `code` to their exit status.
train() {
    if ! submitted; then
        end 65 "$changed"
        exit 65
    fi
    rm -f job/.step # of the previous link
    if [ -n "$fabric" ]; then rm -rf fabric && mkdir fabric || :; fi
    # shellcheck disable=SC2034 # the command of job.sh that starts the ranks has it
    tasks=$((nodes * tasks_per_node))
    set --
    if [ -n "$all_ranks" ]; then
        set -- "$resume" "$all_ranks"
    elif [ "$number" -gt 1 ]; then
        if [ -z "$resume" ]; then
            end 73 "the app cannot go on: run it again"
            exit 73
        fi
        set -- "$resume"
    fi
    printf 'job.sh: job %s, link %s: %s\n' "$job" "$number" "$(start_ranks shell_line "$@")" >>log.txt
    start_ranks exec "$@" >>log.txt 2>&1 &
    child=$! ranks=$!
    if [ -n "$warned" ]; then tell; fi # the warning came before `ranks` was set
    if [ -n "$told" ]; then stop; fi
    await "$child"
    trap '' USR1 URG TERM INT HUP
    if [ -n "$teller" ]; then kill "$teller" 2>/dev/null || :; fi
    child='' ranks='' teller=''
    # If a signal stopped the ranks, their launcher may exit with any status. A newer checkpoint
    # shows that the ranks were stopped as intended.
    if [ "$code" -ne 0 ] && [ -n "$warned$told" ] && [ "$(newest)" -gt "$before" ]; then code=75; fi
    code=$(cause "$code")
    if [ -z "$told" ] && preempted "$code"; then code=75 warned=preempted; fi
    # With torchrun, the agent of a lost node has failed although the others completed the run.
    if [ -n "$restarts" ] && grep -q '"status": "success"' result.json 2>/dev/null; then code=0; fi
}

# leave: end the timer, and remove the copies and the compiled code on the nodes.
leave() {
    if [ -n "$timer" ]; then kill "$timer" 2>/dev/null || :; fi
    if [ -n "$staged$visited" ] && [ -z "$share" ]; then
        if [ -n "$min_nodes" ]; then nodes=$alive; fi
        start_nodes command clear || :
    fi
    trap - EXIT
}

# set_timer: signal this script before the time limit, if the batch system does not.
set_timer() {
    if [ -z "$timer_seconds" ]; then return; fi
    (sleep "$timer_seconds" & trap 'kill $!; exit' TERM; wait $! && kill -USR1 $$) >/dev/null 2>&1 &
    timer=$!
}

# begin_mps: start NVIDIA's Multi-Process Service on the nodes, beside the ranks.
begin_mps() {
    # shellcheck disable=SC2034 # start_nodes reads it: this step shares the nodes with the ranks
    beside=yes
    start_nodes exec mps >>log.txt 2>&1 &
    service=$!
    beside=
    sleep 2
    if ! kill -0 "$service"; then
        end 69 "NVIDIA's Multi-Process Service does not start"
        exit 69
    fi
}

# end_mps: end the Multi-Process Service. Its process on each node ends the service there.
end_mps() {
    kill "$service" || :
    wait "$service" || :
}

# main WORD...: run job.sh. The beginning of this file explains the words.
main() {
    case ${1-} in
    clear)
        if [ -n "$staged" ]; then rm -rf -- "$staged"; fi
        drop_caches
        exit
        ;;
    node)
        # srun ends the other nodes' checks at once, and may lose the messages that are on their way.
        # shellcheck disable=SC2034 # fail() reads it
        failure=$2.$rank.failed
        check_node "$2" "$3"
        exit
        ;;
    task)
        shift
        if [ -n "$trainings" ]; then run_trainings; fi
        run_task "$@"
        ;;
    mps)
        serve_mps
        exit
        ;;
    esac

    warned='' told='' child='' ranks='' teller='' timer=''
    # shellcheck disable=SC2034 # see begin_mps
    beside=
    all_nodes=$nodes alive=$nodes lost='' started_from=''
    listen
    if [ -n "$trainings" ]; then lead; fi
    other=$(foreign)
    if [ -n "$other" ]; then
        why="$other is not a plain file of this run alone: remove it, then trimaran resume"
        if ! [ -L job ]; then refuse 73 "$why" || :; fi
        fail 73 "$why"
    fi
    # The batch system runs a copy of job.sh, but the tasks run job/job.sh.
    if ! submitted; then stopped 65 "$changed: run the recipe again"; fi
    noted || :
    if [ -n "$share" ]; then note_own "$job" || :; fi
    if [ -n "$initial" ]; then check_initial; fi
    # mpirun itself may be in a module.
    if [ "$starter" = mpirun ]; then load_modules || stopped 69 "$why"; fi
    check_srun
    if futile; then
        stopped 75 "no progress: the job has begun twice from step $(newest), and been ended before the next checkpoint; trimaran resume goes on from there"
    fi
    begin
    TRIMARAN_PORT=$(printf '%s' "$job" | tr -cd 0-9)
    TRIMARAN_PORT=$((20000 + (1$TRIMARAN_PORT + ${share:-0} * 1237) % 10000)) # jobs of adjacent numbers may share a node
    export TRIMARAN_PORT
    if [ -n "$srun_mpi" ]; then
        TRIMARAN_TMPFS=$(scontrol show config | sed -nE 's/^TmpFS +=  *//p')
        export TRIMARAN_TMPFS
    fi
    if [ -z "$share" ]; then set_timer; fi
    trap leave EXIT
    look
    in_time
    if [ -n "$mps" ]; then begin_mps; fi
    train
    if [ -n "$mps" ]; then end_mps; fi
    while [ -n "$min_nodes" ] && [ -z "$warned" ] && fewer "$code"; do
        if [ -n "$warned$told" ]; then code=75 && break; fi
        end "$code" "a node was lost: it goes on with $left of $nodes nodes from step $(newest)"
        nodes=$left
        begin
        look
        in_time
        train
    done
    if [ "$code" -ne 75 ] || [ -z "$warned" ]; then
        why=$(explain)
        if [ -z "$why" ] && [ -n "$told" ] && [ "$code" -ne 0 ]; then why="it was told to end (SIGTERM)"; fi
        end "$code" "$why"
        if [ "$code" -eq 0 ]; then follow; fi
        exit "$code"
    fi
    case $warned in
    preempted) why="preempted" ;;
    *) why="the time limit came" ;;
    esac
    if [ "$(newest)" -le "$before" ] && { [ "$warned" = yes ] || stalled; }; then
        end 75 "no progress: $why, and no checkpoint was written; ask for more time, then trimaran resume"
        exit 75
    fi
    if grep -qxF -- "$job" job/cancelled 2>/dev/null; then
        end 75 "cancelled: trimaran resume goes on from step $(newest)"
        exit 75
    fi
    end 75 "$why: it goes on from step $(newest)"
    if [ -n "$share" ]; then exit "$unfinished"; fi # the job of all trainings is queued again
    leave # while the job still has its nodes
    again || {
        end 75 "$why, and $(title) does not take the job once more: trimaran resume goes on from step $(newest)"
        exit 75
    }
}

