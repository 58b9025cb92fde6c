#!/bin/sh
# The script of the first stage of AMD's images: compiles Horovod if HOROVOD is "yes". The first command
# of the stage, `rocm_check.py base`, has checked the base image, and ends with status 78 if it is not
# the expected one. This script ends with 79 if Horovod cannot be compiled here; the image can then be
# built with HOROVOD=no, and has DDP only. It ends with 1 if the machine failed.
set -eu

python=/opt/trimaran/bin/python
mkdir -p /opt/stage/bin /opt/stage/lib
[ "$HOROVOD" = yes ] || exit 0
"$python" /mnt/build/rocm_check.py horovod

work=$(mktemp -d)
{ sh /mnt/build/horovod.sh 2>&1 && echo built > "$work/status" || true; } | tee "$work/log"
[ -f "$work/status" ] || "$python" /mnt/build/rocm_check.py failed "$work/log"
rm -r "$work"
