#!/bin/sh
# The first stage of AMD's images: checks the base image, and compiles Horovod if HOROVOD is "yes".
# Ends with status 78 if the base image is not the expected one, and with 79 if Horovod cannot be
# compiled here; the image can then be built with HOROVOD=no, and has DDP only.
set -eu

python=/opt/trimaran/bin/python
"$python" /mnt/build/rocm_check.py base
mkdir -p /opt/stage/bin /opt/stage/lib
[ "$HOROVOD" = yes ] || exit 0
"$python" /mnt/build/rocm_check.py horovod

work=$(mktemp -d)
{ sh /mnt/build/horovod.sh 2>&1 && echo built > "$work/status" || true; } | tee "$work/log"
[ -f "$work/status" ] || "$python" /mnt/build/rocm_check.py failed "$work/log"
rm -r "$work"
