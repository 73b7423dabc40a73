"""A bounded number of launches, spread evenly over a run: for questions that are dear for each launch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from musetrace.analysis.spans.run_like import RunLike
from musetrace.analysis.spans.selection import LaunchColumns, Selection, check_scope

# Spans of a graph take about a microsecond each, and a step of several ranks has to be read as a whole.
MOST_SPANS = 250_000
MOST_SPANS_READ = 6_000_000


@dataclass(frozen=True)
class LaunchSample:
    """Launches by step, and how many there are in scope, in how many steps."""

    launches: dict[int, list[int]]
    of: int
    steps: int

    @property
    def size(self) -> int:
        """How many were chosen."""
        return sum(len(ids) for ids in self.launches.values())


def launch_sample(
    run: RunLike, selection: Selection, most_spans: int | None = MOST_SPANS, *, whole_steps: bool = False
) -> LaunchSample:
    """Launches of the scope, all of them or so many that they have about ``most_spans`` spans on all ranks.

    At least one; of evenly spread steps, evenly spread launches of each, or with ``whole_steps`` all of each.
    ``most_spans`` None: all.

    Raises:
        AnalysisError: the run has no such rank, step or layer kind.
    """
    check_scope(run, selection)
    by_step = _launches(run, selection)
    total = sum(len(ids) for ids in by_step.values())
    if most_spans is None or not total:
        return LaunchSample(by_step, total, len(by_step))
    steps = list(by_step)
    middle = steps[len(steps) // 2]
    in_step = sum(run.spans(rank, middle).num_rows for rank in run.ranks if middle in run.step_ids(rank))
    of_step = len(_launches(run, Selection(None, None, middle))[middle])
    if whole_steps:
        chosen_steps = _spread(steps, min(max(most_spans // max(in_step, 1), 1), len(steps)))
        return LaunchSample({step: by_step[step] for step in chosen_steps}, total, len(by_step))
    wanted = min(max(most_spans * of_step // max(in_step, 1), 1), total)
    steps = _spread(steps, min(wanted, max(MOST_SPANS_READ // max(in_step, 1), 1), len(steps)))
    chosen = {}
    for place, step in enumerate(steps):
        mine = wanted * (place + 1) // len(steps) - wanted * place // len(steps)
        chosen[step] = _spread(by_step[step], min(mine, len(by_step[step])))
    return LaunchSample({step: ids for step, ids in chosen.items() if ids}, total, len(by_step))


def _launches(run: RunLike, selection: Selection) -> dict[int, list[int]]:
    """The stamped launches in scope, ids by step, of any rank."""
    found: dict[int, set[int]] = {}
    for rank in run.ranks if selection.rank is None else (selection.rank,):
        columns = LaunchColumns.of(run.launches(rank))
        for step in run.step_ids(rank):
            if selection.step in (None, step):
                ids = columns.launch[columns.chosen(step, selection.layer_kind)]
                found.setdefault(step, set()).update(ids.tolist())
    return {step: sorted(found[step]) for step in sorted(found) if found[step]}


def _spread(values: Sequence[int], count: int) -> list[int]:
    """So many of them, each from the middle of an equal part."""
    return [values[(2 * at + 1) * len(values) // (2 * count)] for at in range(count)]
