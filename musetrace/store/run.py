"""The reading API: a run as tables, indexed when it has to be."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from musetrace.errors import AnalysisError, NotARunError, TraceFileError
from musetrace.job_table import JobTable
from musetrace.store import losses, tables
from musetrace.store.arrow_file import BatchReader
from musetrace.store.cube_store import CUBES, CubeStore, identity_of
from musetrace.store.index import MANIFEST, PROBE_KEY, fresh_manifest, index_into, index_run
from musetrace.store.journal_files import SUFFIX, find_journals, journal_paths
from musetrace.store.named_tables import MOST_ROWS, Chosen, named_table
from musetrace.store.payloads import parse_job_table
from musetrace.store.pyramid_store import PyramidStore
from musetrace.store.rank_index import table_path

# Open files and small tables that are kept; thousands of ranks must not mean thousands of open files.
_KEPT = 16
_UNKNOWN_TABLE = JobTable(
    name="unknown", warps_per_block=0, slots=0, jobs=(), job_of_pair=(), warp_of_pair=()
)


class Run:
    """A recorded run. Safe to use from several threads; reads what is asked for, with plain file reads.

    ``manifest`` is the run's ``manifest.json``; times in every table are integers in ns.
    """

    def __init__(self, path: Path, folder: Path, manifest: dict[str, Any]) -> None:
        """``folder`` holds the index; when it is not the run itself, it is removed with this object."""
        self.path = path
        self.manifest = manifest
        self._folder = folder
        if folder != path:
            weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self._entries = {int(entry["rank"]): entry for entry in manifest["ranks"]}
        self._kept: OrderedDict[tuple[str, int], Any] = OrderedDict()
        self._lock = threading.Lock()
        table = manifest.get("job_table")
        parsed = parse_job_table(table, table.get("slots", 0)) if isinstance(table, dict) else None
        self.job_table = parsed or _UNKNOWN_TABLE

    @property
    def cubes(self) -> CubeStore | None:
        """What the analysis keeps in the index; None for an index that goes with this object."""
        if self._folder != self.path:
            return None
        return CubeStore(self._folder / CUBES, identity_of(self.manifest, without=PROBE_KEY))

    @property
    def pyramid_store(self) -> PyramidStore | None:
        """Where the timeline keeps pictures of the steps; None for an index that goes with this object."""
        if self._folder != self.path:
            return None
        return PyramidStore(self._folder / CUBES, identity_of(self.manifest, without=PROBE_KEY))

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks that have data, in order."""
        return tuple(sorted(self._entries))

    @property
    def verdict(self) -> str:
        """``complete``, ``incomplete`` or ``damaged``: the worst rank's."""
        return str(self.manifest["verdict"])

    @property
    def blocks(self) -> int:
        """Blocks of each rank (of the largest, should they differ)."""
        return max((int(entry["blocks"]) for entry in self._entries.values()), default=0)

    @property
    def losses(self) -> dict[str, Any]:
        """Counts of everything that is missing or odd, over all ranks (see ``musetrace.store.losses``), and
        ``missing_ranks``, a list.
        """
        told = self.manifest["losses"]
        # An index without journals may be older than a kind of loss, and then has none of it.
        counts = {name: int(told.get(name, 0)) for name in losses.COUNTED}
        return {**counts, "missing_ranks": list(self.manifest["missing_ranks"])}

    @property
    def loss_reasons(self) -> dict[str, int]:
        """Lost launches by the reason that the recorder had, over all ranks."""
        sums: dict[str, int] = {}
        for entry in self._entries.values():
            for reason, launches in entry.get("loss_reasons", {}).items():
                sums[reason] = sums.get(reason, 0) + int(launches)
        return sums

    @property
    def notes(self) -> tuple[str, ...]:
        """One sentence for each thing that is wrong with a journal."""
        notes = [
            f"{entry['file']}: {note}"
            for _, entry in sorted(self._entries.items())
            for note in entry["notes"]
        ]
        missing = self.manifest["missing_ranks"]
        if missing:
            shown = ", ".join(map(str, missing[:8])) + (", ..." if len(missing) > 8 else "")
            notes.append(
                f"{len(missing)} of {self.manifest['world']} ranks have no readable journal here: {shown}"
            )
        return (*notes, *self.manifest["unreadable"])

    @property
    def is_being_recorded(self) -> bool:
        """Whether a recorder was still writing a journal when the run was opened."""
        return any(entry["recording"] for entry in self._entries.values())

    def steps(self, rank: int) -> pa.Table:
        """The steps of a rank, one row each (columns: ``musetrace.store.tables.STEPS``).

        ``output``, a hash of what the step made or "", is missing in an index of an older version.
        """
        return self._keep("steps", rank, lambda: self._table("steps", rank, tables.STEPS_SCHEMAS))

    def launches(self, rank: int) -> pa.Table:
        """The launches of a rank by step and launch (columns: ``musetrace.store.tables.LAUNCHES``)."""
        return self._keep("launches", rank, lambda: self._table("launches", rank, [tables.LAUNCHES]))

    def spans(self, rank: int, step: int) -> pa.RecordBatch:
        """The spans of one step, sorted by block and begin; begin is relative to the step's ``base_ns``.

        Columns: ``musetrace.store.tables.spans_schema``. Raises AnalysisError for a step that the rank lacks.
        """
        positions = self._keep("positions", rank, lambda: {s: i for i, s in enumerate(self.step_ids(rank))})
        if step not in positions:
            raise AnalysisError(f"rank {rank} of {self.path} has no step {step}; it has {self._range(rank)}")
        batch = self._keep("spans", rank, lambda: self._spans_reader(rank)).batch(positions[step])
        if batch.num_rows != self.steps(rank).column("spans")[positions[step]].as_py():
            raise TraceFileError(f"step {step} of rank {rank} has other spans than its steps table tells")
        return batch

    def table(
        self, name: str, *, rank: Chosen = None, step: Chosen = None, most_rows: int | None = MOST_ROWS
    ) -> pa.Table:
        """A table for pyarrow, pandas, polars or duckdb: ``spans``, ``launches``, ``steps`` or ``jobs``.

        Names (op, job, kinds, flag) are dictionary columns. ``begin_ns`` and ``end_ns`` are times of the
        rank's device clock, ``from_step_ns`` and ``from_launch_ns`` the begin of a span or launch from there,
        ``host_*`` times of the host's clock: int64 ns, null where nothing was stamped. ``gap_ns`` is the time
        from a launch's end to the begin of the step's next, negative where they overlap. Spans with a
        ``flag`` other than ``ok`` are there too; their length is 0.

        Args:
            name: which table. ``jobs`` has one row per job, whatever rank and step.
            rank: one rank, several, or None for all.
            step: the same of steps.
            most_rows: so many spans at most, so that a large run is not read by accident; None: any number.

        Raises:
            AnalysisError: there is no such table, rank or step, or it has too many rows.
        """
        return named_table(self, name, rank, step, most_rows)

    def step_ids(self, rank: int) -> list[int]:
        """The numbers of a rank's steps, growing."""
        return list(self.steps(rank).column("step").to_pylist())

    def _range(self, rank: int) -> str:
        ids = self.step_ids(rank)
        return f"{len(ids)} steps from {ids[0]} to {ids[-1]}" if ids else "no steps"

    def _spans_reader(self, rank: int) -> BatchReader:
        reader = self._reader("spans", rank, tables.SPANS_SCHEMAS)
        if len(reader) != self._entries[rank]["steps"]:
            raise reader.damaged(f"it has {len(reader)} steps, the manifest {self._entries[rank]['steps']}")
        return reader

    def _table(self, name: str, rank: int, schemas: Sequence[pa.Schema]) -> pa.Table:
        reader = self._reader(name, rank, schemas)
        table = reader.table()
        if table.num_rows != self._entries[rank][name]:
            raise reader.damaged(f"it has {table.num_rows} rows, the manifest {self._entries[rank][name]}")
        return table

    def _reader(self, name: str, rank: int, schemas: Sequence[pa.Schema]) -> BatchReader:
        if rank not in self._entries:
            raise AnalysisError(f"{self.path} has no rank {rank}; it has {', '.join(map(str, self.ranks))}")
        return BatchReader(table_path(self._folder, name, rank), schemas)

    def _keep(self, what: str, rank: int, make: Callable[[], Any]) -> Any:
        key = (what, rank)
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        made = make()
        with self._lock:
            self._kept[key] = made
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return made


def open_run(path: str | os.PathLike[str]) -> Run:
    """Open a run's folder, and index it first when its index is missing or older than its journals.

    A run that is still being recorded, or whose folder cannot be written, is indexed into a temporary folder.
    Raises NotARunError, UnsupportedVersionError or TraceFileError.
    """
    folder = Path(path)
    _check_is_folder(folder)
    manifest = fresh_manifest(folder)
    if manifest is not None:
        return Run(folder, folder, manifest)
    if not journal_paths(folder):
        raise NotARunError(
            f"{folder} has no journal (*{SUFFIX}) in it; name a folder made by musetrace record"
        )
    if not any(journal.being_written for journal in find_journals(folder).journals):
        try:
            return Run(folder, folder, index_run(folder))
        except OSError:
            # Read-only or full: the run can still be looked at.
            pass
    temporary = Path(tempfile.mkdtemp(prefix="musetrace-"))
    try:
        return Run(folder, temporary, index_into(folder, temporary))
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _check_is_folder(path: Path) -> None:
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise NotARunError(f"cannot open {path}: {reason}; name a folder made by musetrace record") from error
    if stat.S_ISDIR(mode):
        return
    if path.suffix == SUFFIX:
        raise NotARunError(f"{path} is the journal of one rank; name its folder, {path.parent}")
    if path.name == MANIFEST:
        raise NotARunError(f"{path} is a run's manifest; name its folder, {path.parent}")
    raise NotARunError(f"{path} is not a folder; name a folder made by musetrace record")
