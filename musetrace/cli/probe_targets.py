"""Where the facts of ``musetrace probe`` go beside the screen: a page of curves, a run; checked before."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from musetrace.cli.text import shown
from musetrace.errors import MusetraceError, UsageError
from musetrace.probe.document import merged
from musetrace.probe.plot import require_plotly, write_plot
from musetrace.store import Run, open_run
from musetrace.store.index import PROBE_KEY, keep_probe
from musetrace.store.whole_file import write_atomically


@dataclass(frozen=True)
class Targets:
    """A file for the curves, and a run to keep the facts with; None for what was not asked for."""

    plot: Path | None
    run: Run | None

    def write(self, probed: dict[str, Any]) -> None:
        """Write what was asked for. Raises MusetraceError."""
        try:
            if self.plot is not None:
                write_atomically(self.plot, write_plot(probed))
                print(f"the curves are in {shown(str(self.plot))}", file=sys.stderr)
            if self.run is not None:
                keep_probe(self.run.path, merged(self.run.manifest.get(PROBE_KEY), probed))
                print(f"kept with {shown(str(self.run.path))}", file=sys.stderr)
        except OSError as error:
            raise MusetraceError(
                f"cannot write {error.filename}: {error.strerror}; the facts are printed above"
            ) from error


def checked_targets(plot: str | None, keep: str | None, device: dict[str, Any]) -> Targets:
    """The targets for facts of a device. Raises MusetraceError where one of them cannot be had."""
    if plot is not None:
        _check_plot(Path(plot), device)
    run = None if keep is None else _run_of(keep, device)
    return Targets(None if plot is None else Path(plot), run)


def _check_plot(path: Path, device: dict[str, Any]) -> None:
    if device["kind"] != "cuda":
        raise UsageError("--plot draws the curves of a GPU, and these are facts of a CPU: leave it out")
    require_plotly()
    parent = path.absolute().parent
    if path.is_dir() or not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        raise MusetraceError(f"cannot write {path}: name a file in a folder that exists and can be written")


def _run_of(path: str, device: dict[str, Any]) -> Run:
    """Facts of another device than the run's would be worse than none."""
    run = open_run(path)
    recorded: dict[str, Any] = run.manifest.get("device") or {}
    if any(recorded.get(name) != device[name] for name in ("kind", "name")):
        raise MusetraceError(
            f"{path} was recorded on {recorded.get('name') or 'an unknown device'}, and these are facts of "
            f"{device['name']}: probe the device of the run"
        )
    if not os.access(run.path, os.W_OK | os.X_OK):
        raise MusetraceError(
            f"the folder {path} cannot be written: copy the run, and keep the facts with the copy"
        )
    return run
