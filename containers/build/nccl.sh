# Sourced once CUDA_HOME has a toolkit and $site is site-packages: Horovod takes that toolkit,
# and the NCCL of the framework's own wheels, so that a process has one.
export CUDA_HOME HOROVOD_CUDA_HOME="$CUDA_HOME" PATH="$CUDA_HOME/bin:$PATH"
export HOROVOD_NCCL_HOME="$site/nvidia/nccl" HOROVOD_NCCL_LINK=SHARED HOROVOD_GPU_OPERATIONS=NCCL
ln -s libnccl.so.2 "$HOROVOD_NCCL_HOME/lib/libnccl.so"  # the name that CMake looks for
