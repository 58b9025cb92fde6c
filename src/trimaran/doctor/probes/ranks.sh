# ------------------------------------------------- facts of the programs that start the ranks

# ranks_said PROGRAM ARGUMENT...: print standard output and error of a program.
ranks_said() { command -v -- "$1" >/dev/null && timeout -k 1 5 "$@" 2>&1 </dev/null; }

for ranks_program in sbatch qsub bsub; do
    value "batch.$ranks_program" "$(command -v "$ranks_program")"
done
if command -v srun >/dev/null; then
    value srun-mpi "$(ranks_said srun --mpi=list)"
fi
if command -v mpirun >/dev/null; then
    value mpirun-path "$(command -v mpirun)"
    value mpirun-version "$(ranks_said mpirun --version)"
else
    value mpirun-path ''
fi
# Names only: a value may be a secret.
value variables "$(env | sed -nE 's/^((PMIX|OMPI|PMI|PRTE|SLURM|SBATCH|HYDI?|I_MPI)_[A-Za-z0-9_]+)=.*/\1/p' | sort)"
