# Sourced by horovod.sh: the toolkit of CUDA 13 from NVIDIA's wheels. They share a folder with
# the runtime that torch brings.
pip install --no-index --no-deps /mnt/build/nvidia_*.whl
site=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
CUDA_HOME=$site/nvidia/cu13
ln -s lib "$CUDA_HOME/lib64"  # where CMake looks
ln -s libcudart.so.13 "$CUDA_HOME/lib/libcudart.so"
. /mnt/build/nccl.sh
