"""Which of the processes of a ``torchrun`` this one is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from musetrace.errors import UsageError

_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True)
class ProcessPlace:
    """Which of the processes this is: ``process`` of ``processes``, on its host the ``local_process``-th."""

    process: int
    processes: int
    local_process: int


def process_place(environment: Mapping[str, str]) -> ProcessPlace | None:
    """The place that ``torchrun`` gave this process; None for one that is alone.

    Raises:
        UsageError: there are several processes, and a variable of theirs is missing or no number.
    """
    if environment.get("WORLD_SIZE", "1") == "1":
        return None
    missing = [name for name in _VARIABLES if name not in environment]
    if missing:
        raise UsageError(
            f"WORLD_SIZE is {environment['WORLD_SIZE']} and {missing[0]} is not set; start the processes "
            "with torchrun"
        )
    try:
        process, processes, local_process = (int(environment[name]) for name in _VARIABLES[:3])
    except ValueError:
        told = ", ".join(f"{name}={environment[name]!r}" for name in _VARIABLES[:3])
        raise UsageError(f"{told}: not all are numbers; start the processes with torchrun") from None
    if not (0 <= process < processes and local_process >= 0):
        raise UsageError(f"there is no process {process} of {processes}; start the processes with torchrun")
    return ProcessPlace(process, processes, local_process)
