"""What is faster or slower in run B than in run A, and in which conditions they are not alike.

It lies where one recording of a build is not like the next: intervals are over the steps of these two
recordings, and what differs from one start of the program to the next (clocks, temperature, placement) is in
none of them. Compare two recordings of the same build first: what is told there is noise of that kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from musetrace.analysis.busy_and_wait import busy_and_wait
from musetrace.analysis.difference import DIFFERENCE_FIELDS, Rule, by_step, difference
from musetrace.analysis.run_like import RunLike
from musetrace.analysis.saved_time import SAVED_FIELDS, WAITING_FIELDS, saved_rows, waiting_rows
from musetrace.analysis.step_series import Name, Series, launch_series, median, op_series
from musetrace.analysis.unlike import unlike
from musetrace.errors import AnalysisError

_DEFAULT = Rule()
_NAMES_SHOWN = 3

_TIME_FIELDS = [("what", pa.string()), ("of", pa.string()), *DIFFERENCE_FIELDS]
_OP_FIELDS = [("launch", pa.string()), ("op", pa.string()), ("kind", pa.string()), *DIFFERENCE_FIELDS]
_ONLY_FIELDS = [
    ("run", pa.string()),
    ("launch", pa.string()),
    ("op", pa.string()),
    ("kind", pa.string()),
    ("time_ns", pa.int64()),
    ("uncertainty_ns", pa.int64()),
    ("launches", pa.uint32()),
    ("n", pa.uint64()),
]


@dataclass(frozen=True)
class Comparison:
    """Two runs beside each other; times in ns, B minus A.

    ``times``: the step by each clock, and by kind of launch its length and the gap to the next. ``ops``: by
    (kind of launch, op, kind of job), told differences first, by what they mean for the step. ``only``: ops
    of one run. ``waiting``: busy and waiting time per block and launch of each op; ``saved``: what became of
    saved time. ``warnings``: what is unlike in the runs, a sentence each. ``ranks`` and
    ``layer_kind``: what was compared, None for all kinds.
    """

    times: pa.Table
    ops: pa.Table
    only: pa.Table
    waiting: pa.Table
    saved: pa.Table
    warnings: tuple[str, ...]
    ranks: tuple[int, ...]
    layer_kind: str | None
    rule: Rule


def compare(
    a: RunLike, b: RunLike, *, layer_kind: str | None = None, rank: int | None = None, rule: Rule = _DEFAULT
) -> Comparison:
    """Compare run B with run A, over the ranks that both have.

    Raises:
        AnalysisError: nothing can be compared, or neither run has that rank or kind of launch.
    """
    ranks = _common_ranks(a, b, rank)
    of_a, of_b = op_series(a, ranks, layer_kind), op_series(b, ranks, layer_kind)
    _check_ops(of_a, of_b, layer_kind)
    waiting_a, waiting_b = busy_and_wait(a, ranks, layer_kind), busy_and_wait(b, ranks, layer_kind)
    waiting = waiting_rows(waiting_a, waiting_b, rule)
    times = _differences(
        launch_series(a, ranks, layer_kind), launch_series(b, ranks, layer_kind), _TIME_FIELDS, rule
    )
    ops = by_step(_differences(of_a, of_b, _OP_FIELDS, rule))
    return Comparison(
        times=_table(times, _TIME_FIELDS),
        ops=_table(ops, _OP_FIELDS),
        only=_table([*_only("a", of_a, of_b), *_only("b", of_b, of_a)], _ONLY_FIELDS),
        waiting=_table(waiting, WAITING_FIELDS),
        saved=_table(saved_rows(waiting), SAVED_FIELDS),
        warnings=tuple(unlike(a, b)),
        ranks=ranks,
        layer_kind=layer_kind,
        rule=rule,
    )


def _common_ranks(a: RunLike, b: RunLike, rank: int | None) -> tuple[int, ...]:
    ranks = tuple(one for one in a.ranks if one in b.ranks and rank in (None, one))
    if not ranks:
        wanted = "no rank in common" if rank is None else f"rank {rank} is not in both"
        raise AnalysisError(
            f"nothing to compare: {wanted}: A has {_listed(a.ranks)}, B has {_listed(b.ranks)}"
        )
    return ranks


def _check_ops(a: Mapping[Name, Series], b: Mapping[Name, Series], layer_kind: str | None) -> None:
    where = "" if layer_kind is None else f" in launches of kind {layer_kind!r}"
    for which, found in (("A", a), ("B", b)):
        if not found:
            raise AnalysisError(f"nothing to compare: {which} has no span{where}")
    if not any(name in b for name in a):
        names = (_listed(tuple("/".join(name) for name in found)) for found in (a, b))
        raise AnalysisError("nothing to compare: no op in common: A has {}, B has {}".format(*names))


def _listed(names: tuple[object, ...]) -> str:
    shown = ", ".join(map(str, names[:_NAMES_SHOWN]))
    return f"{shown}, ..." if len(names) > _NAMES_SHOWN else shown or "none"


def _differences(
    a: Mapping[Name, Series], b: Mapping[Name, Series], fields: list[tuple[str, pa.DataType]], rule: Rule
) -> list[dict[str, Any]]:
    columns = [field for field, _ in fields]
    return [
        {**dict(zip(columns, name, strict=False)), **difference(series, b[name], rule)}
        for name, series in a.items()
        if name in b
    ]


def _only(run: str, mine: Mapping[Name, Series], other: Mapping[Name, Series]) -> list[dict[str, Any]]:
    return [
        {
            "run": run,
            "launch": name[0],
            "op": name[1],
            "kind": name[2],
            "time_ns": median(series.step_ns),
            "uncertainty_ns": series.uncertainty_ns,
            "launches": series.launches,
            "n": series.count,
        }
        for name, series in mine.items()
        if name not in other
    ]


def _table(rows: list[dict[str, Any]], fields: list[tuple[str, pa.DataType]]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=pa.schema(fields))
