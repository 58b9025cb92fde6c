"""Qualify the nodes of a job in a short time: compute, memory, network, storage, start.

`trimaran doctor --measure` compares the rates of the nodes, and names nodes that deviate from the
others. `qualification.py` contains the method.
"""

from __future__ import annotations

from collectives import importing
from collectives.settings import QualifySettings
from trainkit.ranks import detect


def main(settings: QualifySettings) -> None:
    """Qualify the nodes as `settings` specify, and write all files below `settings.out`.

    Raises:
        AppError: the measurement failed; the error has the exit code of the app contract.
    """
    first = importing.first(detect().local_rank == 0)
    from collectives import qualification  # imports PyTorch

    qualification.main(settings, first)
