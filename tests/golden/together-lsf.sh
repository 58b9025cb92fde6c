#!/bin/sh
# Runs 4 trainings on one node as a job, which is queued again at its time limit and resumes.
# Needs LSF, Apptainer, sh and coreutils; touches no network. Written by Trimaran 0.1.0.
#BSUB -J together-64afd289c2
#BSUB -nnodes 1
#BSUB -W 00:10
#BSUB -q batch
#BSUB -P ABC123
#BSUB -o job/lsf-%J.txt
#BSUB -wt 2
#BSUB -wa USR1
#BSUB -r
# This file has only what belongs to this job. All functions, and an explanation of the variables,
# are in job/functions.sh in the run directory, which is the same file for every job.
set -eu
LC_ALL=C
# The commands of the batch system may be in a folder that only the login node has in PATH.
PATH=${PATH:-/usr/local/bin:/usr/bin:/bin}:/opt/batch/bin
export LC_ALL PATH
unset CDPATH kept_caches initial next_run next_initial trainings fabric fabric_missing fabric_settings fabric_devices fabric_libraries fabric_contained

scheduler=lsf
job=${LSB_JOBID:?not in a job of LSF: submit this script, or use trimaran submit}
out=/example/runs/four
functions_sha256=f3ebe8ae85949ae90db72051eacf73a696ce6331cde59d196e9483954526a02a
image=
image_sha256=
image_machine=
engine=
gpu_device=
nodes=1
tasks_per_node=1
tasks=$((nodes * tasks_per_node))
starter=jsrun
ranks_told=
srun_mpi=
resume=
all_ranks=
min_nodes=
restarts=
timer_seconds=
mps=
local_storage=
stage_data=
devices=
initial=
next_run=
next_initial=
trainings=4

# start_ranks DO WORD...: DO is exec, or shell_line to print the command. The words go to each rank.
start_ranks() {
    how=$1
    shift
    "$how" jsrun --nrs "$tasks" --rs_per_host 1 --tasks_per_rs 1 --cpu_per_rs 32 --gpu_per_rs 4 --bind packed:32 --launch_distribution packed /bin/sh job/job.sh task "$@"
}

# start_nodes DO WORD...: run `job.sh WORD...` once on each node.
start_nodes() {
    how=$1
    shift
    "$how" jsrun --nrs "$nodes" --rs_per_host 1 --tasks_per_rs 1 --cpu_per_rs ALL_CPUS /bin/sh job/job.sh "$@"
}

# each_training DO: call DO with the number of GPUs and the run directory of each training.
each_training() {
    "$1" 1 '/example/runs/four/1-a b'
    "$1" 1 '/example/runs/four/2-a b'
    "$1" 1 '/example/runs/four/3-a b'
    "$1" 1 '/example/runs/four/4-a b'
}

load_modules() { :; }

cd -- "$out" || {
    printf 'job.sh: the run directory %s is gone\n' "$out" >&2
    exit 73
}
why=
if [ -L job/functions.sh ]; then
    why="is a link, which is not followed"
elif ! [ -f job/functions.sh ]; then
    why="is not there"
elif ! sum=$(sha256sum <job/functions.sh) || [ "${sum%% *}" != "$functions_sha256" ]; then
    why="is another file than the one that was submitted"
fi
if [ -n "$why" ]; then
    why="$(uname -n): job/functions.sh $why: run the recipe again"
    printf 'job.sh: %s\n' "$why" >&2
    # trimaran status shows this reason.
    if [ $# -eq 0 ] && ! [ -L job ] && part=$(mktemp job/.part-XXXXXX); then
        printf '{"job": "%s", "exit_status": 65, "reason": "%s"}\n' "$job" "$why" >"$part" &&
            chmod +rw "$part" && mv -fT -- "$part" job/refused.json || :
    fi
    exit 65
fi
# shellcheck source=functions.sh
. job/functions.sh
main "$@"
