#!/bin/sh
# Builds Horovod's wheel from its source and our patch, and installs it into /opt/stage.
# What it is built with comes as HOROVOD_* variables (docs: horovod.readthedocs.io/en/stable/install.html),
# and for GPUs by a script beside this one, named in TOOLKIT.
set -eu

python=/opt/trimaran/bin/python
wheels=/usr/share/python-wheels  # Debian's pip, where the base image brings none
if [ -d "$wheels" ]; then
    PYTHONPATH=$(echo "$wheels"/pip-*.whl)
    export PYTHONPATH
fi
pip() { "$python" -m pip --disable-pip-version-check --no-cache-dir "$@"; }

# Its name ends up in the libraries (__FILE__): the same in each build. Not below /tmp, which
# is the host's during Apptainer's builds.
work=/opt/horovod
mkdir "$work"

# For this stage alone.
pip install --no-index --no-deps /mnt/build/setuptools-*.whl /mnt/build/wheel-*.whl
[ -z "${TOOLKIT:-}" ] || . "/mnt/build/$TOOLKIT"

# GCC takes two headers of equal content for one if their dates are equal, too (#pragma once). pip
# dates files by its clock: by chance, a header was read twice, and the build ID was another one.
find /opt/trimaran/lib -path '*/include/*' -type f -exec touch --date=@0 {} +

# The owners in the archive would be subordinate users of whoever builds without root.
tar -xzf /mnt/build/horovod-0.28.1.tar.gz --no-same-owner -C "$work"
cd "$work/horovod-0.28.1"
for changes in /mnt/build/*.patch; do patch -p1 < "$changes"; done

# Objects are kept outside the container, for a build that was interrupted.
export CMAKE_CXX_COMPILER_LAUNCHER='sh;/mnt/build/kept.sh'
# Not the default -j8: the compiler takes up to 2 GiB per file.
MAKEFLAGS=-j$(nproc) pip wheel --no-index --no-deps --no-build-isolation --wheel-dir "$work" .

# --prefix: `bin` and `lib` as in the environment; the scripts name its interpreter.
pip install --no-index --find-links "$work" --no-deps --no-compile --prefix /opt/stage horovod
find /opt/stage -name '*.so' -exec strip --strip-unneeded {} +
