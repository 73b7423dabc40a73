"""Did the time that ops saved turn into waiting, and for what?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from musetrace.analysis.clock_quality import combined_ns, told_apart
from musetrace.analysis.difference import DIFFERENCE_FIELDS, FASTER, SLOWER, Rule, difference, is_told
from musetrace.analysis.idle_series import IdleSeries
from musetrace.analysis.step_series import Name, Series

# "About as much": idle time grew by at least so much of what was saved.
MOST = 0.75
PART = 0.25

TURNED = "turned into waiting"
PARTLY = "partly turned into waiting"
NOT_TURNED = "did not turn into waiting"

_GROWN = pa.struct(
    [("cause", pa.string()), ("wait", pa.string()), ("awaits", pa.string()), ("grew_ns", pa.int64())]
)

BUSY_FIELDS = [("launch", pa.string()), ("op", pa.string()), *DIFFERENCE_FIELDS]
IDLE_FIELDS = [
    *((name, pa.string()) for name in ("launch", "cause", "op", "wait", "awaits")),
    *DIFFERENCE_FIELDS,
    ("most_rank", pa.uint32()),
    ("most_difference_ns", pa.int64()),
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


def busy_rows(a: Mapping[Name, Series], b: Mapping[Name, Series], rule: Rule) -> list[dict[str, Any]]:
    """Busy time per block and launch of each op that both runs have."""
    return [
        {"launch": name[0], "op": name[1], **difference(series, b[name], rule)}
        for name, series in a.items()
        if name in b
    ]


def idle_rows(a: IdleSeries, b: IdleSeries, ranks: Sequence[int], rule: Rule) -> list[dict[str, Any]]:
    """Idle time per block and launch by cause, of the kinds of launches that both runs have.

    A cause that one of them does not have is 0 there. ``most_rank`` is the rank on which it differs most, by
    ``most_difference_ns``; null where there is one rank, or where that is not told from the rank on which it
    differs least.
    """
    names = [
        name
        for name in dict.fromkeys([*a.causes, *b.causes])
        if name[0] in a.nothing and name[0] in b.nothing
    ]
    order = list(dict.fromkeys(name[0] for name in names))
    rows = []
    for name in sorted(names, key=lambda name: order.index(name[0])):
        row = difference(a.cause(name), b.cause(name), rule)
        most = _most(a, b, name, ranks, rule) if is_told(row) and len(ranks) > 1 else {}
        named = {field: part or None for (field, _), part in zip(IDLE_FIELDS, name, strict=False)}
        rows.append({**named, **row, **most})
    return rows


def _most(a: IdleSeries, b: IdleSeries, name: Name, ranks: Sequence[int], rule: Rule) -> dict[str, Any]:
    """The rank on which a cause differs most, where it is certain that another one differs less."""
    rows = {rank: difference(a.cause(name, rank), b.cause(name, rank), rule) for rank in ranks}
    in_order = sorted(rows, key=lambda rank: abs(rows[rank]["difference_ns"]))
    first, second = rows[in_order[-1]], rows[in_order[0]]
    off = combined_ns(first["uncertainty_ns"], second["uncertainty_ns"])
    outside = first["low_ns"] > second["high_ns"] or first["high_ns"] < second["low_ns"]
    if not is_told(first) or not outside:
        return {}
    if not told_apart(first["difference_ns"], second["difference_ns"], off):
        return {}
    return {"most_rank": in_order[-1], "most_difference_ns": first["difference_ns"]}


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
