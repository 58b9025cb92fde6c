# Sourced by horovod.sh: the base image has ROCm, its compiler and RCCL. CMake comes as a wheel,
# and Open MPI is the one among the image's own wheels.
pip install --no-index --no-deps /mnt/build/cmake-*.whl
export PATH="/opt/trimaran/bin:/opt/rocm/bin:$PATH"
export HOROVOD_GPU=ROCM HOROVOD_ROCM_HOME=/opt/rocm HOROVOD_GPU_OPERATIONS=NCCL  # that is RCCL
