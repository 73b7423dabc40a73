"""Steady runs in which every length is known: jobs one after the other, with a noise of 0.5 %."""

from __future__ import annotations

import numpy as np

from tests.unit.fake_run import FakeRun, Launch, Span, small_table

TABLE = small_table()
LAUNCHES = 3


def planted(
    *,
    steps: int = 12,
    seed: int = 0,
    tick_ns: int | None = 1,
    ranks: tuple[int, ...] = (0, 1),
    **lengths: int,
) -> FakeRun:
    """``LAUNCHES`` launches a step; jobs one after the other, of ``lengths`` ns with a noise of 0.5 %."""
    rng = np.random.default_rng(seed)
    launches, spans = [], []
    names = [one.name for one in TABLE.jobs]
    for rank in ranks:
        for step in range(steps):
            for launch in range(LAUNCHES):
                begin, end = 100_000 * launch + 10, 0
                for block in range(2):
                    at = begin
                    for name, length in lengths.items():
                        dur = round(length * (1 + 0.005 * float(rng.uniform(-1, 1))))
                        spans.append(Span(rank, step, launch, block, names.index(name), at, dur))
                        at += dur
                    end = max(end, at)
                launches.append(Launch(rank, step, launch, launch, "sliding", begin, end, 2))
    return FakeRun(launches, spans, 2, ranks, tick_ns=tick_ns)


LENGTHS = {"a_compute": 20_000, "b_compute": 10_000, "b_send": 3000, "stop1_wait_ranks": 5000}
