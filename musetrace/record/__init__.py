"""Recording: what a program calls to have its launches recorded.

This module stays light, because ``import musetrace`` imports it: the recorder is loaded when it is used.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from musetrace.record.recorder import Recorder

__all__ = ["record"]


def record(
    path: str | os.PathLike[str] | None = None,
    *,
    force: bool = False,
    stamps: str | None = None,
    alone: bool = False,
    timeout_s: float | None = None,
) -> Recorder:
    """Start recording into a folder that does not exist yet; use it as a context manager.

    Under ``musetrace record -o RUN -- COMMAND`` the output is RUN, whatever ``path`` says. Without a path
    and outside of such a command the recorder is off and costs nothing. ``force`` replaces an earlier run;
    ``stamps`` is ``register``, ``store`` or ``off`` (default: ``MUSETRACE_STAMPS``, else ``register``).

    Under ``torchrun`` all processes call this with one folder, and record one run: a process of ``n`` ranks
    has those from ``RANK * n`` on. Rank 0 makes the folder; the others wait for it, and at the end it waits
    for them, ``timeout_s`` each (default 300 s and 30 s). With ``alone`` a process records a run of its own.

    Raises RecordError, before the first launch, when the output cannot be used.
    """
    from musetrace.record.recorder import open_recorder

    return open_recorder(path, force=force, stamps=stamps, alone=alone, timeout_s=timeout_s)
