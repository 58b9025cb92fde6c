# Sourced by horovod.sh: a toolkit of CUDA 12.4. NVIDIA's wheels of CUDA 12 have the headers, but
# no nvcc; Debian 13 has it, built so that it runs on Debian 12. Code of 12.4 runs with the
# runtime of 12.6 that torch brings.
CUDA_HOME=/opt/cuda
site=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
parts=$work/toolkit
dpkg-deb -x /mnt/build/nvidia-cuda-toolkit_*.deb "$parts"
pip install --no-index --no-deps --target "$parts/wheels" /mnt/build/nvidia_*.whl

mkdir -p "$CUDA_HOME/bin" "$CUDA_HOME/include" "$CUDA_HOME/lib64" "$CUDA_HOME/nvvm/bin"
for program in bin2c cudafe++ fatbinary nvlink ptxas; do
    mv "$parts/usr/bin/$program" "$CUDA_HOME/bin"
done
toolkit=$parts/usr/lib/nvidia-cuda-toolkit
mv "$toolkit/bin/nvcc" "$toolkit/bin/crt" "$CUDA_HOME/bin"
mv "$toolkit/bin/cicc" "$CUDA_HOME/nvvm/bin"
mv "$toolkit/libdevice" "$CUDA_HOME/nvvm"
for part in cuda_cccl cuda_nvcc cuda_runtime; do
    cp -r "$parts/wheels/nvidia/$part/include/." "$CUDA_HOME/include"
done

# Debian's names its own folders.
cat > "$CUDA_HOME/bin/nvcc.profile" <<'EOF'
TOP                = $(_HERE_)/..
NVVMIR_LIBRARY_DIR = $(TOP)/nvvm/libdevice
PATH              += $(TOP)/nvvm/bin:$(_HERE_):
INCLUDES          += "-I$(TOP)/include" $(_SPACE_)
LIBRARIES         =+ $(_SPACE_) "-L$(TOP)/lib64"
EOF

# The wheels have the shared runtime alone (see horovod-shared-cudart.patch). nvcc wants the
# other library, for kernels that start kernels, even where there are none.
ln -s "$site/nvidia/cuda_runtime/lib/libcudart.so.12" "$CUDA_HOME/lib64/libcudart.so"
ar rc "$CUDA_HOME/lib64/libcudadevrt.a"
export NVCC_APPEND_FLAGS=-cudart=shared LIBRARY_PATH="$CUDA_HOME/lib64"
. /mnt/build/nccl.sh
