#!/bin/sh
# Runs resnet-imagenet/cpu-2node-smoke as a job, which is queued again at its time limit and resumes.
# Needs LSF, Apptainer, sh and coreutils; touches no network. Written by Trimaran 0.1.0.
#BSUB -J resnet-imagenet/cpu-2node-smoke-c826c0ac5a
#BSUB -nnodes 2
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
out=/example/runs/1
functions_sha256=f3ebe8ae85949ae90db72051eacf73a696ce6331cde59d196e9483954526a02a
image=/example/image.sif
image_sha256=2222222222222222222222222222222222222222222222222222222222222222
image_machine=x86_64
data1=/example/data
engine=/example/bin/apptainer
gpu_device=
nodes=2
tasks_per_node=1
tasks=$((nodes * tasks_per_node))
starter=jsrun
ranks_told=yes
srun_mpi=
resume=--resume=auto
all_ranks=
min_nodes=
restarts=
timer_seconds=
mps=
local_storage=
stage_data=
devices=

# start_ranks DO WORD...: DO is exec, or shell_line to print the command. The words go to each rank.
start_ranks() {
    how=$1
    shift
    "$how" jsrun --nrs "$tasks" --rs_per_host 1 --tasks_per_rs 1 --cpu_per_rs 1 --bind packed:1 --launch_distribution packed /bin/sh job/job.sh task "$@"
}

# start_nodes DO WORD...: run `job.sh WORD...` once on each node.
start_nodes() {
    how=$1
    shift
    "$how" jsrun --nrs "$nodes" --rs_per_host 1 --tasks_per_rs 1 --cpu_per_rs ALL_CPUS /bin/sh job/job.sh "$@"
}

# rank_command DO...: the command of a rank: the variables that it gets, Apptainer, and the app.
rank_command() {
    "$@" \
        APPTAINERENV_MASTER_ADDR="$TRIMARAN_FIRST" APPTAINERENV_MASTER_PORT="$TRIMARAN_PORT" \
        PATH="$engine_folder":/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin APPTAINERENV_OMP_NUM_THREADS=1 \
        "$engine" --quiet run --containall --no-home --cleanenv --no-eval ${userns:+--userns} --pwd /out \
        --mount type=bind,source=/example/data,destination=/data,ro --mount \
        type=bind,source=/example/runs/1,destination=/out "$image" train --data=/data --out=/out \
        --model=resnet20 --strategy=ddp --steps=120 --batch-size-per-rank=64 --base-lr=0.1 --base-batch=64 \
        --warmup-steps=20 --schedule=cosine --momentum=0.9 --weight-decay=0.0001 --label-smoothing=0.0 \
        --precision=auto --threads=1 --seed=17 '--note=a b'
}

# each_data DO: call DO with name, folder and SHA-256 of each data set.
each_data() {
    "$1" data1 "$data1" '4444444444444444444444444444444444444444444444444444444444444444'
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
