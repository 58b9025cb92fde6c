#!/bin/sh
#SBATCH --nodes=2 --ntasks-per-node=1 --output=job.txt
# The variables TENSORFLOW and TORCH are the paths of two images.
scripts=$SLURM_SUBMIT_DIR/scripts
data=$SLURM_SUBMIT_DIR/fashion.npz

# A rank is HOST:PORT. The port differs for each rank, because several may be on one host.
WORKERS=$(srun --label hostname | sort -n | awk '{print $2 ":" 29500 + NR}' | paste -s -d ,)
MASTER_ADDR=$(hostname)  # this script runs on the first node
export WORKERS MASTER_ADDR

srun apptainer exec "$TENSORFLOW" python "$scripts/keras_multiworker.py" "$data"
srun --mpi=pmix apptainer exec "$TENSORFLOW" python "$scripts/keras_horovod.py" "$data"
srun --mpi=pmix apptainer exec "$TORCH" python "$scripts/torch_horovod.py" "$data"
# torchrun starts the ranks of its node. Each node inserts its own number.
srun sh -c 'exec apptainer exec "$TORCH" torchrun --nnodes 2 --nproc-per-node 1 \
    --node-rank "$SLURM_NODEID" --master-addr "$MASTER_ADDR" "$@"' sh "$scripts/torch_ddp.py" "$data"
