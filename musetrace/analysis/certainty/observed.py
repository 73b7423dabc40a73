"""How much of what an answer is about was recorded: launches, blocks and spans seen of those expected.

The share is a lower bound. A launch that the recorder lost counts in every kind, since which it was is not
recorded, and in its step; where its step is not known either (a damaged chunk, an index of an older version)
it counts in every scope. What nobody counted is not in it: the verdict says whether a journal was cut short.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from musetrace.analysis.spans.run_like import RunLike

if TYPE_CHECKING:
    from musetrace.analysis.spans.selection import LaunchColumns, Selection

NAMES = ("launches", "blocks", "spans")


@dataclass
class Seen:
    """What was seen of one rank, or of several, and how much there should have been.

    ``blocks`` are blocks of launches; ``spans`` are sound ones, of those that the blocks seen stamped.
    """

    launches: int = 0
    launches_expected: int = 0
    blocks: int = 0
    blocks_expected: int = 0
    spans: int = 0
    spans_expected: int = 0

    @property
    def share(self) -> float | None:
        """Blocks seen by blocks expected, times the same of spans; None where nothing was expected."""
        if not self.blocks_expected:
            return None
        found, expected = self.blocks, self.blocks_expected
        if self.spans_expected:
            found, expected = found * self.spans, expected * self.spans_expected
        return found / expected

    def add(self, other: Seen) -> None:
        """Add what was seen of others."""
        for name in NAMES:
            for of in (name, f"{name}_expected"):
                setattr(self, of, getattr(self, of) + getattr(other, of))


def total(of: Iterable[Seen]) -> Seen:
    """The sum of some."""
    found = Seen()
    for one in of:
        found.add(one)
    return found


def seen_by_rank(
    run: RunLike, selection: Selection, launches: Mapping[int, LaunchColumns]
) -> dict[int, Seen]:
    """Launches and blocks of every rank in scope, spans still 0 of those that overflowed.

    A rank that is missing should have had what the rank with most has.
    """
    entries = {entry.get("rank"): entry for entry in run.manifest.get("ranks", [])}
    found = {
        rank: _of_rank(run, selection, columns, entries.get(rank, {})) for rank, columns in launches.items()
    }
    if selection.rank is None and found:
        most = max(found.values(), key=lambda one: one.launches_expected)
        for rank in run.losses.get("missing_ranks", ()):
            found[rank] = Seen(launches_expected=most.launches_expected, blocks_expected=most.blocks_expected)
    return found


def _of_rank(run: RunLike, selection: Selection, columns: LaunchColumns, entry: Mapping[str, Any]) -> Seen:
    wanted = np.ones(len(columns.step), dtype=np.bool_)
    if selection.step is not None:
        wanted &= columns.step == selection.step
    if selection.layer_kind is not None:
        wanted &= columns.kind == selection.layer_kind
    stamped = wanted & columns.stamped
    grids = {kind: run.job_table.blocks_of(kind, run.blocks) for kind in dict.fromkeys(columns.kind.tolist())}
    grid = np.array([grids[kind] for kind in columns.kind.tolist()], dtype=np.int64)
    losses = entry.get("losses") or {}
    lost = lost_launches(entry, selection.step)
    return Seen(
        launches=int(stamped.sum()),
        launches_expected=int(wanted.sum()) + lost,
        blocks=int(np.minimum(columns.blocks, grid)[stamped].sum()),
        blocks_expected=int(grid[wanted].sum()) + lost * run.blocks + int(losses.get("dropped_blocks", 0)),
        spans_expected=-(-int(losses.get("overflow_stamps", 0)) // 2),
    )


def lost_launches(entry: Mapping[str, Any], step: int | None) -> int:
    """How many launches of a rank may be missing, from its entry of the manifest; in one step or in all."""
    losses = entry.get("losses") or {}
    lost, damaged = int(losses.get("lost_launches", 0)), int(losses.get("damaged_chunks", 0))
    if step is None:
        return lost + damaged
    by_step = {int(of): int(number) for of, number in (entry.get("lost_by_step") or {}).items()}
    unplaced = lost - sum(by_step.values())
    return by_step.get(step, 0) + max(unplaced, 0) + damaged
