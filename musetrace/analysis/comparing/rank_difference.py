"""The difference of one time in two runs over all ranks, and the rank on which it is largest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from musetrace.analysis.certainty.clock_quality import combined_ns, told_apart
from musetrace.analysis.comparing.difference import DIFFERENCE_FIELDS, Rule, difference, is_told
from musetrace.analysis.comparing.step_series import Series

OfRank = Callable[[int | None], Series | None]

RANK_DIFFERENCE_FIELDS = [
    *DIFFERENCE_FIELDS,
    ("most_rank", pa.uint32()),
    ("most_difference_ns", pa.int64()),
]


def rank_difference(a: OfRank, b: OfRank, ranks: Sequence[int], rule: Rule) -> dict[str, Any]:
    """The columns of ``RANK_DIFFERENCE_FIELDS``; ``a`` and ``b`` give the series of a rank, or of all.

    ``most_rank`` is the rank on which the time differs most, by ``most_difference_ns``; null where there are
    fewer than two ``ranks`` that have it, or no difference is told, or that one is not told from that of the
    rank on which it differs least.
    """
    row = _difference(a, b, None, rule)
    if not is_told(row) or len(ranks) < 2:
        return row
    of_ranks = {rank: of for rank in ranks if (of := _difference(a, b, rank, rule))}
    told = {rank: of for rank, of in of_ranks.items() if is_told(of)}
    if not told or len(of_ranks) < 2:
        return row
    most = max(told, key=lambda rank: abs(told[rank]["difference_ns"]))
    first = told[most]
    second = min(of_ranks.values(), key=lambda of: abs(of["difference_ns"]))
    off = combined_ns(first["uncertainty_ns"], second["uncertainty_ns"])
    outside = first["low_ns"] > second["high_ns"] or first["high_ns"] < second["low_ns"]
    if outside and told_apart(first["difference_ns"], second["difference_ns"], off):
        row |= {"most_rank": most, "most_difference_ns": first["difference_ns"]}
    return row


def _difference(a: OfRank, b: OfRank, rank: int | None, rule: Rule) -> dict[str, Any]:
    first, second = a(rank), b(rank)
    return {} if first is None or second is None else difference(first, second, rule)
