"""Journals to store: the Arrow tables of every rank, and the manifest of what the run is and lacks."""

from __future__ import annotations

import json
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from pathlib import Path
from typing import Any

from musetrace.store import limits, losses
from musetrace.store.alignment import alignments
from musetrace.store.cube_store import CUBES
from musetrace.store.journal_files import JournalFile, JournalSet, find_journals, journal_paths
from musetrace.store.kept_probe import crc_of, read_kept, write_kept
from musetrace.store.payloads import FORMAT_NAME, PayloadError, decode_json
from musetrace.store.rank_index import TABLES, RankIndex, index_journal, table_path
from musetrace.store.whole_file import write_atomically

MANIFEST = "manifest.json"
INDEX_VERSION = "1.1"
# What this code reads too, where the journals that it was made from are gone. Until 1.0 clocks were compared
# at the start and at the end alone.
_OLDER_VERSIONS = ("1.0",)
PROBE_KEY = "probe"
_CRC_KEY = "crc32"
_TEMPORARY = ".index-"
# Ranks that are indexed at the same time: what each takes is mostly outside of Python.
_THREADS = 2
_META_SECTIONS = (
    "stamps",
    "job_table",
    "device",
    "model",
    "build",
    "clock",
    "clocks",
    "host_tick_ns",
    "job_bytes",
    "command",
    "recorded_at",
)


def index_run(folder: Path) -> dict[str, Any]:
    """Index a folder in place and return the manifest, which is written last.

    Raises TraceFileError when the journals do not belong together, OSError when the folder cannot be written.
    """
    for left_over in folder.glob(_TEMPORARY + "*"):
        shutil.rmtree(left_over, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=_TEMPORARY, dir=folder) as temporary:
        manifest = index_into(folder, Path(temporary))
        _publish(Path(temporary), folder)
    return manifest


def index_into(folder: Path, target: Path) -> dict[str, Any]:
    """Index a folder's journals into another folder and return the manifest."""
    found = find_journals(folder)
    with ThreadPoolExecutor(_THREADS) as threads:
        indexes = threads.map(index_journal, found.journals, repeat(target))
        ranks = list(zip(found.journals, indexes, strict=True))
    manifest = _manifest(found, ranks, target)
    if (probed := read_kept(folder)) is not None:
        manifest[PROBE_KEY] = probed
    (target / MANIFEST).write_text(_text_of(manifest), "ascii")
    return manifest


def keep_probe(folder: Path, probed: dict[str, Any]) -> None:
    """Keep what ``musetrace probe`` measured with a run, in place of earlier facts; ``probed`` is plain JSON.

    They stand in a file of their own, which every index takes up, and in the manifest. Raises OSError.
    """
    manifest = fresh_manifest(folder)
    write_kept(folder, probed)
    # An index that is older than its journals is made again when the run is opened next.
    if manifest is not None:
        write_atomically(folder / MANIFEST, _text_of({**manifest, PROBE_KEY: probed}))


def fresh_manifest(folder: Path) -> dict[str, Any] | None:
    """The manifest of a folder's index, or None when none matches the journals as they are now."""
    try:
        status = (folder / MANIFEST).stat()
        manifest = decode_json(
            (folder / MANIFEST).read_bytes()[: limits.MAX_MANIFEST_BYTES], limits.MAX_MANIFEST_BYTES
        )
        if manifest.pop(_CRC_KEY) != crc_of(manifest):
            return None
        sizes = {folder / entry["file"]: entry["bytes"] for entry in manifest["ranks"]}
        index_sizes = {folder / name: size for name, size in manifest["tables"].items()}
        if any(path.stat().st_size != size for path, size in index_sizes.items()):
            return None
        journals = journal_paths(folder)
        version = manifest["index_version"]
        # Without journals the index is all there is.
        if version != INDEX_VERSION and (journals or version not in _OLDER_VERSIONS):
            return None
        if journals and (
            not _describes(journals, sizes, manifest, status.st_mtime_ns)
            or manifest.get(PROBE_KEY) != read_kept(folder)
        ):
            return None
    except (OSError, PayloadError, KeyError, TypeError, AttributeError):
        return None
    return manifest


def _text_of(manifest: dict[str, Any]) -> str:
    return json.dumps({_CRC_KEY: crc_of(manifest), **manifest}, indent=1) + "\n"


def _describes(
    journals: list[Path], sizes: dict[Path, int], manifest: dict[str, Any], written_ns: int
) -> bool:
    if len(journals) != len(sizes) + len(manifest["unreadable"]) or not set(sizes) <= set(journals):
        return False
    if manifest["losses"].keys() != set(losses.COUNTED):
        return False  # made before some kind of loss was counted
    for path in journals:
        status = path.stat()
        if status.st_mtime_ns >= written_ns or status.st_size != sizes.get(path, status.st_size):
            return False
    return True


def _publish(source: Path, folder: Path) -> None:
    # Without a manifest nobody takes the tables for an index while they are replaced.
    (folder / MANIFEST).unlink(missing_ok=True)
    shutil.rmtree(folder / CUBES, ignore_errors=True)
    for table in TABLES:
        shutil.rmtree(folder / table, ignore_errors=True)
        (source / table).replace(folder / table)
    (source / MANIFEST).replace(folder / MANIFEST)


def _manifest(found: JournalSet, ranks: list[tuple[JournalFile, RankIndex]], target: Path) -> dict[str, Any]:
    meta = next((index.meta.data for _, index in ranks if index.meta is not None), {})
    verdicts = [index.verdict for _, index in ranks]
    if found.missing_ranks:
        verdicts.append(losses.INCOMPLETE)
    if found.unreadable:
        verdicts.append(losses.DAMAGED)
    names = [table_path(Path(), table, journal.rank).as_posix() for journal, _ in ranks for table in TABLES]
    aligned = alignments([index.clock_of(journal.rank) for journal, index in ranks])
    return {
        "format": FORMAT_NAME,
        "index_version": INDEX_VERSION,
        "recording_id": found.journals[0].recording_id,
        "world": found.world,
        "verdict": losses.worst(verdicts),
        "losses": {name: sum(index.losses[name] for _, index in ranks) for name in losses.COUNTED},
        "missing_ranks": found.missing_ranks,
        "unreadable": list(found.unreadable),
        **{section: meta.get(section) for section in _META_SECTIONS},
        "ranks": [
            {
                "rank": journal.rank,
                "file": journal.path.name,
                "recording": journal.being_written,
                **index.to_json(),
                "alignment": aligned[journal.rank],
            }
            for journal, index in ranks
        ],
        "reports": [{**report, "rank": journal.rank} for journal, index in ranks for report in index.reports],
        "tables": {name: (target / name).stat().st_size for name in names},
    }
