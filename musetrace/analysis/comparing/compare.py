"""What is faster or slower in run B than in run A, and in which conditions they are not alike.

It lies where one recording of a build is not like the next: intervals are over the steps of these two
recordings, and what differs from one start of the program to the next (clocks, temperature, placement) is in
none of them. Compare two recordings of the same build first: what is told there is noise of that kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from musetrace.analysis.comparing.compared_numbers import (
    ONLY_FIELDS,
    OP_FIELDS,
    TIME_FIELDS,
    Numbers,
    family,
    only_rows,
    op_rows,
    time_rows,
)
from musetrace.analysis.comparing.difference import Rule
from musetrace.analysis.comparing.outputs import Outputs, compare_outputs
from musetrace.analysis.comparing.saved_time import (
    BUSY_FIELDS,
    IDLE_FIELDS,
    SAVED_FIELDS,
    busy_rows,
    idle_rows,
    saved_rows,
)
from musetrace.analysis.comparing.skew_series import SKEW_FIELDS, skew_rows
from musetrace.analysis.comparing.step_series import Name, Series
from musetrace.analysis.comparing.unlike import unlike
from musetrace.analysis.spans.run_like import RunLike
from musetrace.errors import AnalysisError

_DEFAULT = Rule()
_NAMES_SHOWN = 3


@dataclass(frozen=True)
class Comparison:
    """Two runs beside each other; times in ns, B minus A.

    ``times``: the step by each clock, and by kind of launch its length, the gap to the next, and busy and
    idle time of a block in it. ``ops``: by (kind of launch, op, kind of job), told differences first, by what
    they mean for the step. ``only``: ops of one run. ``busy``: busy time per block and launch of each op;
    ``idle``: idle time per block and launch by cause; ``saved``: what became of saved time. ``skew``: by
    (kind of launch, stop) how long a rank arrives before the last one, and who was last. ``outputs`` of
    the steps. ``warnings``: what is unlike in the runs, a sentence each. ``observed``: the share of what
    is compared that A and B recorded, at least (``certainty.observed``); None without spans.
    ``ranks`` and ``layer_kind``: what was compared, None for all kinds.

    Where a run has no spans (its stamps were off) there are ``times`` and ``outputs`` alone.
    """

    times: pa.Table
    ops: pa.Table
    only: pa.Table
    busy: pa.Table
    idle: pa.Table
    saved: pa.Table
    skew: pa.Table
    outputs: Outputs
    warnings: tuple[str, ...]
    observed: tuple[float | None, float | None]
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
    of_a, of_b = Numbers.of(a, ranks, layer_kind), Numbers.of(b, ranks, layer_kind)
    of_family = replace(rule, family=family(of_a, of_b))
    times = time_rows(of_a, of_b, of_family)
    unstamped = _unstamped(of_a, of_b, times, layer_kind)
    if not unstamped:
        _check_ops(of_a.ops.names, of_b.ops.names)
    # A rank that is not seen may be the one on which most differs.
    ranked = () if any(run.losses["missing_ranks"] for run in (a, b)) else ranks
    busy = busy_rows(of_a.busy, of_b.busy, ranked, rule)
    idle = idle_rows(of_a.idle, of_b.idle, ranked, rule)
    ops_a, ops_b = of_a.ops.names, of_b.ops.names
    only = [] if unstamped else [*only_rows("a", ops_a, ops_b), *only_rows("b", ops_b, ops_a)]
    return Comparison(
        times=_table(times, TIME_FIELDS),
        ops=_table(op_rows(of_a.ops, of_b.ops, ranked, of_family), OP_FIELDS),
        only=_table(only, ONLY_FIELDS),
        busy=_table(busy, BUSY_FIELDS),
        idle=_table(idle, IDLE_FIELDS),
        saved=_table(saved_rows(busy, idle, times), SAVED_FIELDS),
        skew=_table(skew_rows(of_a.skew, of_b.skew, ranked, rule), SKEW_FIELDS),
        outputs=compare_outputs(a, b, ranks),
        warnings=(*unstamped, *unlike(a, b)),
        observed=(of_a.observed, of_b.observed),
        ranks=ranks,
        layer_kind=layer_kind,
        rule=of_family,
    )


def _unstamped(a: Numbers, b: Numbers, times: list[dict[str, Any]], layer_kind: str | None) -> list[str]:
    """A sentence for each run without a span. Raises AnalysisError where there is no time either."""
    without = [which for which, of in (("A", a), ("B", b)) if not of.ops.names]
    if without and not times:
        where = "" if layer_kind is None else f" in launches of kind {layer_kind!r}"
        raise AnalysisError(f"nothing to compare: {without[0]} has no span{where}")
    return [f"{which} has no spans: only times of steps and launches are compared" for which in without]


def _common_ranks(a: RunLike, b: RunLike, rank: int | None) -> tuple[int, ...]:
    ranks = tuple(one for one in a.ranks if one in b.ranks and rank in (None, one))
    if not ranks:
        wanted = "no rank in common" if rank is None else f"rank {rank} is not in both"
        raise AnalysisError(
            f"nothing to compare: {wanted}: A has {_listed(a.ranks)}, B has {_listed(b.ranks)}"
        )
    return ranks


def _check_ops(a: Mapping[Name, Series], b: Mapping[Name, Series]) -> None:
    kinds = [tuple(dict.fromkeys(name[0] for name in of)) for of in (a, b)]
    if not set(kinds[0]) & set(kinds[1]):
        listed = map(_listed, kinds)
        raise AnalysisError(
            "nothing to compare: no kind of launch in common: A has {}, B has {}".format(*listed)
        )
    if not any(name in b for name in a):
        names = (_listed(tuple("/".join(name) for name in found)) for found in (a, b))
        raise AnalysisError("nothing to compare: no op in common: A has {}, B has {}".format(*names))


def _listed(names: tuple[object, ...]) -> str:
    shown = ", ".join(map(str, names[:_NAMES_SHOWN]))
    return f"{shown}, ..." if len(names) > _NAMES_SHOWN else shown or "none"


def _table(rows: list[dict[str, Any]], fields: list[tuple[str, pa.DataType]]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=pa.schema(fields))
