"""The changes of a what-if as the address bar has them: ``what=gemm2=-10%,stop3=gone``."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import unquote

from musetrace.analysis.paths.change import Change, change_of
from musetrace.errors import MusetraceError
from musetrace.job_table import JobTable

MOST_CHANGES = 64


def written(name: str) -> str:
    """A name as it stands in the list: what divides it is escaped."""
    return name.replace("%", "%25").replace(",", "%2C").replace("=", "%3D")


def read_changes(text: str) -> list[str]:
    """The changes of a list, as ``musetrace.analysis.what_if`` takes them."""
    entries = [entry.rpartition("=") for entry in text.split(",")[:MOST_CHANGES] if entry.strip()]
    return [f"{unquote(name)}={amount}" if name else unquote(amount) for name, _, amount in entries]


def write_changes(changes: Sequence[str]) -> str:
    """The list of some changes."""
    entries = [change.rpartition("=") for change in changes]
    return ",".join(f"{written(name)}={amount}" for name, _, amount in entries)


def settle(table: JobTable, text: str) -> str:
    """The list without what a run cannot change."""
    return write_changes([change.text for change in known_changes(table, text)])


def known_changes(table: JobTable, text: str) -> list[Change]:
    """The changes of a list that a run can make; the time of a name once, and its waits once."""
    found: dict[tuple[str, bool], Change] = {}
    for entry in read_changes(text):
        try:
            change = change_of(table, entry)
        except MusetraceError:
            continue
        found.setdefault((change.target, change.gone), change)
    return list(found.values())
