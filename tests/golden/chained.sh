#!/bin/sh
# Runs resnet-imagenet/cpu-2node-smoke as a job, which is queued again at its time limit and resumes.
# Needs Slurm, Apptainer, sh and coreutils; touches no network. Written by Trimaran 0.1.0.
#SBATCH --job-name=resnet-imagenet/cpu-2node-smoke-275d5d99f5
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=1
#SBATCH --time=00:10:00
#SBATCH --partition=main
#SBATCH --account=project-1
#SBATCH --qos=normal
#SBATCH --constraint=ib&avx512
#SBATCH --output=job/slurm-%j.txt
#SBATCH --open-mode=append
#SBATCH --signal=B:USR1@60
#SBATCH --requeue
#SBATCH --export=NONE
# This file has only what belongs to this job. All functions, and an explanation of the variables,
# are in job/functions.sh in the run directory, which is the same file for every job.
set -eu
LC_ALL=C
# The commands of the batch system may be in a folder that only the login node has in PATH.
PATH=${PATH:-/usr/local/bin:/usr/bin:/bin}:/opt/batch/bin
export LC_ALL PATH
unset CDPATH kept_caches initial next_run next_initial trainings fabric fabric_missing fabric_settings fabric_devices fabric_libraries fabric_contained

scheduler=slurm
job=${SLURM_JOB_ID:?not in a job of Slurm: submit this script, or use trimaran submit}
out=/example/runs/chain/2-b
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
starter=srun
ranks_told=yes
srun_mpi=pmix
resume=--resume=auto
all_ranks=
min_nodes=
restarts=
timer_seconds=
mps=
local_storage=/local/scratch
stage_data=
devices=
initial=/example/runs/chain/1-a/checkpoints/step-00000500.npz
next_run=/example/runs/chain/3-c
next_initial=/example/runs/chain/2-b/checkpoints/step-00000750.npz
trainings=

# start_ranks DO WORD...: DO is exec, or shell_line to print the command. The words go to each rank.
start_ranks() {
    how=$1
    shift
    "$how" srun --export=ALL --nodes="$nodes" --ntasks="$tasks" --ntasks-per-node=1 --cpus-per-task=1 --kill-on-bad-exit=1 --mpi=pmix /bin/sh job/job.sh task "$@"
}

# start_nodes DO WORD...: run `job.sh WORD...` once on each node.
start_nodes() {
    how=$1
    shift
    "$how" srun --export=ALL --nodes="$nodes" --ntasks="$nodes" --ntasks-per-node=1 --kill-on-bad-exit=1 --mpi=none /bin/sh job/job.sh "$@"
}

# rank_command DO...: the command of a rank: the variables that it gets, Apptainer, and the app.
rank_command() {
    "$@" \
        APPTAINERENV_NCCL_SOCKET_IFNAME=ib0 \
        APPTAINERENV_MASTER_ADDR="$TRIMARAN_FIRST" APPTAINERENV_MASTER_PORT="$TRIMARAN_PORT" \
        PATH="$engine_folder":/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin APPTAINERENV_OMP_NUM_THREADS=1 \
        "$engine" --quiet run --containall --no-home --cleanenv --no-eval ${userns:+--userns} --pwd /out \
        --mount type=bind,source=/example/data,destination=/data,ro --mount \
        type=bind,source=/example/runs/chain/2-b,destination=/out --mount \
        type=bind,source=/example/runs/chain/1-a/checkpoints/step-00000500.npz,destination=/initial.npz,ro \
        "$image" train --data=/data --out=/out --model=resnet20 --strategy=ddp --steps=120 \
        --batch-size-per-rank=64 --base-lr=0.1 --base-batch=64 --warmup-steps=20 --schedule=cosine \
        --momentum=0.9 --weight-decay=0.0001 --label-smoothing=0.0 --precision=auto --threads=1 --seed=17 \
        --initial=/initial.npz
}

# each_data DO: call DO with name, folder and SHA-256 of each data set.
each_data() {
    "$1" data1 "$data1" '4444444444444444444444444444444444444444444444444444444444444444'
}

load_modules() { load apptainer/1.4; }

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
