"""Did the time that ops saved turn into waiting, and for what?"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from musetrace.analysis.certainty.clock_quality import combined_ns
from musetrace.analysis.comparing.difference import FASTER, SLOWER, Rule
from musetrace.analysis.comparing.idle_series import IdleSeries
from musetrace.analysis.comparing.rank_difference import RANK_DIFFERENCE_FIELDS, rank_difference
from musetrace.analysis.comparing.step_series import RankSeries

# "About as much": idle time grew by at least so much of what was saved.
MOST = 0.75
PART = 0.25

TURNED = "turned into waiting"
PARTLY = "partly turned into waiting"
NOT_TURNED = "did not turn into waiting"

_GROWN = pa.struct(
    [("cause", pa.string()), ("wait", pa.string()), ("awaits", pa.string()), ("grew_ns", pa.int64())]
)

BUSY_FIELDS = [("launch", pa.string()), ("op", pa.string()), *RANK_DIFFERENCE_FIELDS]
IDLE_FIELDS = [
    *((name, pa.string()) for name in ("launch", "cause", "op", "wait", "awaits")),
    *RANK_DIFFERENCE_FIELDS,
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


def busy_rows(a: RankSeries, b: RankSeries, ranks: Sequence[int], rule: Rule) -> list[dict[str, Any]]:
    """Busy time per block and launch of each op that both runs have.

    ``ranks``: of which the one of the most is told (``rank_difference``); fewer than two for none.
    """
    return [
        {
            **{"launch": name[0], "op": name[1]},
            **rank_difference(partial(a.of, name), partial(b.of, name), ranks, rule),
        }
        for name in a.names
        if name in b.names
    ]


def idle_rows(a: IdleSeries, b: IdleSeries, ranks: Sequence[int], rule: Rule) -> list[dict[str, Any]]:
    """Idle time per block and launch by cause, of the kinds of launches that both runs have.

    A cause that one of them does not have is 0 there. ``ranks`` as for the busy rows.
    """
    both = a.nothing.keys() & b.nothing.keys()
    names = [name for name in dict.fromkeys([*a.causes, *b.causes]) if name[0] in both]
    order = list(dict.fromkeys(name[0] for name in names))
    return [
        {
            **{field: part or None for (field, _), part in zip(IDLE_FIELDS, name, strict=False)},
            **rank_difference(partial(a.cause, name), partial(b.cause, name), ranks, rule),
        }
        for name in sorted(names, key=lambda name: order.index(name[0]))
    ]


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
