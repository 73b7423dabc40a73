"""Did the time that ops saved turn into waiting, and for what?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from musetrace.analysis.busy_series import BusySeries
from musetrace.analysis.clock_quality import combined_ns, told_apart
from musetrace.analysis.difference import DIFFERENCE_FIELDS, FASTER, SLOWER, Rule, difference, is_told
from musetrace.analysis.idle_series import IdleSeries
from musetrace.analysis.step_series import Series

_OfRank = Callable[[int | None], Series]

# "About as much": idle time grew by at least so much of what was saved.
MOST = 0.75
PART = 0.25

TURNED = "turned into waiting"
PARTLY = "partly turned into waiting"
NOT_TURNED = "did not turn into waiting"

_GROWN = pa.struct(
    [("cause", pa.string()), ("wait", pa.string()), ("awaits", pa.string()), ("grew_ns", pa.int64())]
)

_MOST = [("most_rank", pa.uint32()), ("most_difference_ns", pa.int64())]

BUSY_FIELDS = [("launch", pa.string()), ("op", pa.string()), *DIFFERENCE_FIELDS, *_MOST]
IDLE_FIELDS = [
    *((name, pa.string()) for name in ("launch", "cause", "op", "wait", "awaits")),
    *DIFFERENCE_FIELDS,
    *_MOST,
]
SAVED_FIELDS = [
    ("launch", pa.string()),
    ("saved_ns", pa.int64()),
    ("idle_grew_ns", pa.int64()),
    ("uncertainty_ns", pa.int64()),
    ("share", pa.float64()),
    ("ops", pa.list_(pa.string())),
    ("into", pa.list_(_GROWN)),
    ("verdict", pa.string()),
    ("launch_difference_ns", pa.int64()),
    ("launch_verdict", pa.string()),
]


def busy_rows(a: BusySeries, b: BusySeries, ranks: Sequence[int], rule: Rule) -> list[dict[str, Any]]:
    """Busy time per block and launch of each op that both runs have; the last columns as in the idle rows.

    ``ranks``: of which the one of the most is told; fewer than two for none.
    """
    return [
        {"launch": name[0], "op": name[1], **_row(partial(a.of, name), partial(b.of, name), ranks, rule)}
        for name in a.ops
        if name in b.ops
    ]


def idle_rows(a: IdleSeries, b: IdleSeries, ranks: Sequence[int], rule: Rule) -> list[dict[str, Any]]:
    """Idle time per block and launch by cause, of the kinds of launches that both runs have.

    A cause that one of them does not have is 0 there. ``most_rank`` is the rank on which it differs most, by
    ``most_difference_ns``; null where there is one rank, or no difference is told, or that one is not told
    from that of the rank on which it differs least.
    """
    both = a.nothing.keys() & b.nothing.keys()
    names = [name for name in dict.fromkeys([*a.causes, *b.causes]) if name[0] in both]
    order = list(dict.fromkeys(name[0] for name in names))
    return [
        {
            **{field: part or None for (field, _), part in zip(IDLE_FIELDS, name, strict=False)},
            **_row(partial(a.cause, name), partial(b.cause, name), ranks, rule),
        }
        for name in sorted(names, key=lambda name: order.index(name[0]))
    ]


def _row(a: _OfRank, b: _OfRank, ranks: Sequence[int], rule: Rule) -> dict[str, Any]:
    """A difference over all ranks, and the rank of the most, where another one's is less for certain."""
    row: dict[str, Any] = difference(a(None), b(None), rule)
    if not is_told(row) or len(ranks) < 2:
        return row
    of_ranks = {rank: difference(a(rank), b(rank), rule) for rank in ranks}
    told = {rank: of for rank, of in of_ranks.items() if is_told(of)}
    if not told:
        return row
    most = max(told, key=lambda rank: abs(told[rank]["difference_ns"]))
    first = told[most]
    second = min(of_ranks.values(), key=lambda of: abs(of["difference_ns"]))
    off = combined_ns(first["uncertainty_ns"], second["uncertainty_ns"])
    outside = first["low_ns"] > second["high_ns"] or first["high_ns"] < second["low_ns"]
    if outside and told_apart(first["difference_ns"], second["difference_ns"], off):
        row |= {"most_rank": most, "most_difference_ns": first["difference_ns"]}
    return row


def saved_rows(
    busy: Sequence[dict[str, Any]], idle: Sequence[dict[str, Any]], times: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    """One row per kind of launch in which an op's busy time became less for certain.

    ``saved_ns`` is what those ops saved, ``idle_grew_ns`` what idle time of the same kind of launch grew by,
    most of it ``into`` the first; both per block and launch, and of told differences alone. ``share`` is the
    second of the first. ``launch_*`` is what became of the launch's length.
    """
    found = []
    for launch in dict.fromkeys(row["launch"] for row in busy):
        saving = [row for row in busy if row["launch"] == launch and row["verdict"] == FASTER]
        growing = [row for row in idle if row["launch"] == launch and row["verdict"] == SLOWER]
        if not saving:
            continue
        saved = -sum(row["difference_ns"] for row in saving)
        grew = sum(row["difference_ns"] for row in growing)
        length = next((row for row in times if (row["what"], row["of"]) == ("launch", launch)), {})
        found.append(
            {
                "launch": launch,
                "saved_ns": saved,
                "idle_grew_ns": grew,
                "uncertainty_ns": combined_ns(*(row["uncertainty_ns"] for row in [*saving, *growing])),
                "share": grew / saved,
                "ops": [row["op"] for row in sorted(saving, key=lambda row: row["difference_ns"])],
                "into": [
                    {
                        **{name: row[name] for name in ("cause", "wait", "awaits")},
                        "grew_ns": row["difference_ns"],
                    }
                    for row in sorted(growing, key=lambda row: -row["difference_ns"])
                ],
                "verdict": _verdict(grew / saved),
                "launch_difference_ns": length.get("difference_ns"),
                "launch_verdict": length.get("verdict"),
            }
        )
    return found


def _verdict(share: float) -> str:
    if share >= MOST:
        return TURNED
    return PARTLY if share >= PART else NOT_TURNED
