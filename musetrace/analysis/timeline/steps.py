"""What a step is made of: its parts, how many kernels it launches, how its length is distributed."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from musetrace.analysis.answer import answer, spread, spread_fields, tick_ns
from musetrace.analysis.certainty.observed import seen_by_rank
from musetrace.analysis.certainty.percentiles import TENTHS, nearest_rank
from musetrace.analysis.spans.run_like import RunLike
from musetrace.analysis.spans.selection import Counted, LaunchColumns, Selection, check_step, chosen_ranks
from musetrace.analysis.timeline.overview import STEP_CLOCKS

Ints = npt.NDArray[np.int64]

STEP = "step"
PARTS = ("draft", "verify", "accept")
# Of the built-in model's launches, where the kind does not name it.
_PART_OF_KIND = dict.fromkeys(("embed", "entry", "sliding", "global", "head"), "verify") | {
    "keep_kv": "accept"
}
MOST_BINS = 20

_PART_FIELDS = [
    ("part", pa.string()),
    ("n", pa.uint64()),
    *((f"launches_p{percent}", pa.uint64()) for percent in TENTHS),
    *spread_fields("part"),
    ("share", pa.float64()),
]
_BIN_FIELDS = [
    ("clock", pa.string()),
    ("from_ns", pa.int64()),
    ("to_ns", pa.int64()),
    ("n", pa.uint64()),
]


def part_of(kind: str) -> str:
    """The part of a step that launches of a kind belong to.

    ``draft``, ``verify`` or ``accept`` where the kind is named so or begins with it and ``_``; ``verify`` for
    the launches of the model's layers and the embedding of their tokens, ``accept`` for the move of accepted
    rows of the KV cache; any other kind (a kernel of somebody's) is a part of its own.
    """
    for part in PARTS:
        if kind == part or kind.startswith(f"{part}_"):
            return part
    return _PART_OF_KIND.get(kind, kind)


def step_parts(run: RunLike, *, rank: int | None = None, step: int | None = None) -> pa.Table:
    """The whole step (``part`` is ``step``), then one row per part in the order of a step.

    An instance is one step of one rank; ``n`` of them have the part. ``launches_*`` are exact nearest-rank
    percentiles of its number of launches (kernels), those without stamps too. ``part_*`` is the time from
    the begin of its first stamped launch to the latest end of one, ``share`` all of that by all steps' time.
    Which kinds of launches make up a part is what ``part_of`` says: ``draft``, ``verify``, ``accept``, and
    kernels of other people under their own names. Parts that a run does not have have no row.

    Meaning: where a step's time goes in the large, and how many kernels it takes. Parts that take turns in a
    step overlap here, since a part reaches from its first launch to its last. Launches that were lost are not
    counted (``observed``). Source: the article's table "step = draft + verify", 97 launches for 1,450.

    Raises:
        AnalysisError: the run has no such rank or step.
    """
    ranks = chosen_ranks(run, Selection(rank=rank))
    check_step(run, ranks, step)
    columns = {one: LaunchColumns.of(run.launches(one)) for one in ranks}
    found: dict[str, list[tuple[int, int, int]]] = {STEP: []}
    for of_rank in columns.values():
        for part, number, launched, length_ns in _parts(of_rank, step):
            found.setdefault(part, []).append((number, launched, length_ns))
    whole_ns = sum(length for _, _, length in found[STEP])
    tick = tick_ns(run)
    rows = [_part_row(part, instances, whole_ns, tick) for part, instances in found.items() if instances]
    return answer(
        run, _PART_FIELDS, rows, Counted(seen=seen_by_rank(run, Selection(None, rank, step), columns))
    )


def _parts(columns: LaunchColumns, step: int | None) -> Iterator[tuple[str, int, int, int]]:
    """(part, step, launches, length in ns) of each step of one rank; of stamped launches, if it has any."""
    part = np.array([part_of(kind) for kind in columns.kind.tolist()], dtype=object)
    for number in np.unique(columns.step).tolist():
        if step not in (None, number):
            continue
        first, last = np.searchsorted(columns.step, (number, number + 1)).tolist()
        of_step = part[first:last]
        for name in (STEP, *dict.fromkeys(of_step.tolist())):
            mine = np.ones(last - first, dtype=np.bool_) if name == STEP else of_step == name
            stamped = np.flatnonzero(mine & columns.stamped[first:last]) + first
            if len(stamped):
                length = int(columns.end_ns[stamped].max() - columns.begin_ns[stamped].min())
                yield name, number, int(mine.sum()), length


def _part_row(
    part: str, instances: list[tuple[int, int, int]], whole_ns: int, tick: int | None
) -> dict[str, object]:
    number, launched, length_ns = np.array(instances, dtype=np.int64).T
    counts = nearest_rank(launched)
    return {
        "part": part,
        "n": len(instances),
        **{f"launches_p{percent}": value for percent, value in zip(TENTHS, counts, strict=True)},
        **spread("part", length_ns, np.unique(number, return_counts=True)[1], tick),
        "share": int(length_ns.sum()) / whole_ns if whole_ns else None,
    }


def step_histogram(run: RunLike, *, rank: int | None = None) -> pa.Table:
    """How many steps x ranks last from ``from_ns`` on and less than ``to_ns``, by each clock.

    Bins are as wide as the smallest of 1, 2, 5, 10, 20... ns that makes them at most 20, and on the device's
    clock no narrower than its step. They have one width each clock, begin at multiples of it, and leave none
    out between the shortest and the longest step.

    Meaning: whether steps have one length or several. Device and host are as in ``step_times``.

    Raises:
        AnalysisError: the run has no such rank.
    """
    ranks = chosen_ranks(run, Selection(rank=rank))
    tables = [run.steps(one) for one in ranks]
    rows: list[dict[str, object]] = []
    for clock, (first, last) in STEP_CLOCKS.items():
        lengths = np.concatenate([np.zeros(0, dtype=np.int64), *(_lengths(of, first, last) for of in tables)])
        rows += _bins(clock, lengths, (tick_ns(run) or 1) if clock == "device" else 1)
    columns = {one: LaunchColumns.of(run.launches(one)) for one in ranks}
    return answer(run, _BIN_FIELDS, rows, Counted(seen=seen_by_rank(run, Selection(rank=rank), columns)))


def _lengths(table: pa.Table, first: str, last: str) -> Ints:
    begin, end = (table[name].to_numpy().astype(np.int64) for name in (first, last))
    lengths: Ints = (end - begin)[(begin > 0) & (end >= begin)]
    return lengths


def _bins(clock: str, lengths: Ints, least_ns: int) -> list[dict[str, object]]:
    if not len(lengths):
        return []
    low, high = int(lengths.min()), int(lengths.max())
    width = next(one for one in _widths() if one >= least_ns and high // one - low // one < MOST_BINS)
    counts = np.bincount(lengths // width - low // width)
    begin = low // width * width
    return [
        {"clock": clock, "from_ns": begin + at * width, "to_ns": begin + (at + 1) * width, "n": n}
        for at, n in enumerate(counts.tolist())
    ]


def _widths() -> Iterator[int]:
    decade = 1
    while True:
        yield from (decade, 2 * decade, 5 * decade)
        decade *= 10
