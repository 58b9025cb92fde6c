"""The libraries that move data between ranks, each in a module that is loaded when it is used."""

from __future__ import annotations

import torch

from collectives.library import Library
from collectives.settings import MeasureSettings
from trainkit.exits import ArgumentError


def connect(settings: MeasureSettings) -> Library:
    """Return the library that `settings` select, connected with the other ranks of the job.

    Raises:
        ArgumentError: the library is not installed, does not fit the launcher, or cannot use the
            device.
        PeerError: the other ranks cannot be reached.
    """
    dtype: torch.dtype = getattr(torch, settings.dtype)
    try:
        if settings.library == "mpi":
            from collectives.libraries import mpi

            return mpi.connect(settings.device, dtype)
        if settings.library == "horovod":
            from collectives.libraries import horovod

            return horovod.connect(settings.device, dtype, settings.fusion_tensors)
        from collectives.libraries import distributed

        return distributed.connect(settings.device, dtype, settings.backend)
    except ArgumentError as error:
        # trainkit's messages name the options of a training.
        text = str(error).replace("--strategy ddp", "--library torch")
        raise ArgumentError(text.replace("--strategy", "--library"), code=error.code) from error
