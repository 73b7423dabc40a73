"""The critical path of a whole step, through its launches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from musetrace.analysis.paths.launch_graph import LaunchWindows
from musetrace.analysis.paths.path_steps import BEFORE, BETWEEN, HEAD, PathSteps


@dataclass(frozen=True)
class LaunchPaths:
    """A launch of a step, with the path to its end on each rank that has it."""

    launch: int
    ranks: tuple[int, ...]
    windows: LaunchWindows
    paths: dict[int, PathSteps]

    def end_on(self, rank: int) -> int:
        """When it ended on a rank."""
        return int(self.windows.end[self.ranks.index(rank)])


def step_path(launches: Sequence[LaunchPaths], rank: int | None) -> PathSteps | None:
    """The path to the last end of a step, on a rank or on all; None where the rank has no launch in it.

    A launch depends on the end of the one before it on the rank that its path comes from. Where its path
    begins before that end, the one before is on the path until then.
    """
    by_id = {one.launch: one for one in launches}
    ends = {
        (one.end_on(at), one.launch, at): at for one in launches for at in one.paths if rank in (None, at)
    }
    if not ends:
        return None
    now, launch, at = max(ends)
    first_ns = min(one.windows.whole[0] for one in launches)
    parts: list[PathSteps] = []
    while True:
        one = by_id[launch]
        path = one.paths[at].until(now)
        inside = path.take(~np.isin(path.step, (BEFORE, HEAD)))
        near = inside if len(inside.step) else one.paths[at]
        if len(inside.step):
            now, at = int(inside.begin[0]), int(inside.rank[0])
        parts.append(inside)
        place = one.ranks.index(at)
        launch, before = int(one.windows.launch_before[place]), int(one.windows.before[place])
        if launch not in by_id or at not in by_id[launch].paths:
            parts.append(near.outside(HEAD, min(first_ns, now), now))
            return PathSteps.joined(parts[::-1])
        before = min(before, now)
        begin = max(min(int(one.windows.begin[place]), now), before)
        parts += [near.outside(HEAD, begin, now), near.outside(BETWEEN, before, begin)]
        now = before
