"""musetrace: a GPU-side profiler and timeline visualizer for megakernels.

    with musetrace.record("run") as recorder:
        ...                      # attach a device, run decode steps
    run = musetrace.open("run")  # read it again

Importing this package needs neither torch nor a GPU.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from musetrace.overhead import overhead
from musetrace.record import record

if TYPE_CHECKING:
    from musetrace.config import get_include
    from musetrace.declare import NewJob, Role
    from musetrace.job_table import JobTable
    from musetrace.overhead.program import TimedStep
    from musetrace.overhead.result import OverheadResult
    from musetrace.record.recorder import Recorder, RecordingResult
    from musetrace.store.run import Run
    from musetrace.store.run import open_run as open

__version__ = "0.1.0"
__all__ = [
    "JobTable",
    "NewJob",
    "OverheadResult",
    "Recorder",
    "RecordingResult",
    "Role",
    "Run",
    "TimedStep",
    "get_include",
    "open",
    "overhead",
    "record",
]

# Public names that are loaded when they are used, so that a program that only records loads no reader.
_LAZY = {
    "JobTable": ("musetrace.job_table", "JobTable"),
    "NewJob": ("musetrace.declare", "NewJob"),
    "OverheadResult": ("musetrace.overhead.result", "OverheadResult"),
    "Recorder": ("musetrace.record.recorder", "Recorder"),
    "RecordingResult": ("musetrace.record.recorder", "RecordingResult"),
    "Role": ("musetrace.declare", "Role"),
    "Run": ("musetrace.store.run", "Run"),
    "TimedStep": ("musetrace.overhead.program", "TimedStep"),
    "get_include": ("musetrace.config", "get_include"),
    "open": ("musetrace.store.run", "open_run"),
}


def __getattr__(name: str) -> Any:
    """Load a public name."""
    if name not in _LAZY:
        raise AttributeError(f"module 'musetrace' has no attribute {name!r}")
    from importlib import import_module

    module, attribute = _LAZY[name]
    return getattr(import_module(module), attribute)
