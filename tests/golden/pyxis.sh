#!/bin/sh
# resnet-imagenet/cpu-2node-smoke with Enroot and Pyxis. Not run by Trimaran: no run.json, no verdict of its own.
#SBATCH --job-name=resnet-imagenet/cpu-2node-smoke
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=1
#SBATCH --time=00:10:00
#SBATCH --open-mode=append
#SBATCH --signal=USR1@120
#SBATCH --export=NONE
set -eu
mkdir -p /scratch/runs/20261124-120000
export OMP_NUM_THREADS=1
MASTER_ADDR=$(uname -n)
MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000))
export MASTER_ADDR MASTER_PORT PET_RDZV_ENDPOINT="$MASTER_ADDR:$MASTER_PORT"
srun --export=ALL --nodes=2 --ntasks=2 --ntasks-per-node=1 --cpus-per-task=1 --kill-on-bad-exit=1 --mpi=pmix '--container-image=registry.example.org#hpc/resnet-imagenet-torch-cpu:0.1.0-torch2.13-cpu' --container-mounts=/project/data/fashion-mnist:/data:ro,/scratch/runs/20261124-120000:/out:rw --container-workdir=/out --no-container-mount-home --no-container-entrypoint python -m resnet_imagenet train --data=/data --out=/out --model=resnet20 --strategy=ddp --steps=120 --batch-size-per-rank=64 --base-lr=0.1 --base-batch=64 --warmup-steps=20 --schedule=cosine --momentum=0.9 --weight-decay=0.0001 --label-smoothing=0.0 --precision=auto --threads=1 --seed=17
