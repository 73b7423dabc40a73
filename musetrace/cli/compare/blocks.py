"""What a block does in a launch, in both runs: rows of busy time by op and of idle time by cause."""

from __future__ import annotations

from typing import Any

from musetrace.analysis import Comparison
from musetrace.analysis.comparing.idle_series import BUSY, IDLE
from musetrace.wording.idle_words import cause_words
from musetrace.wording.numbers import NOTHING

_WHOLE = {BUSY: ("all ops", "(busy)"), IDLE: ("all causes", "(idle)")}


def block_rows(found: Comparison) -> list[dict[str, Any]]:
    """Differences with ``launch``, ``in`` and ``for`` in words; ``whole`` for all ops or all causes."""
    whole = [
        {**row, "launch": row["of"], "in": _WHOLE[row["what"]][0], "for": _WHOLE[row["what"]][1]}
        for row in found.times.to_pylist()
        if row["what"] in _WHOLE
    ]
    busy = [{**row, "in": row["op"], "for": _WHOLE[BUSY][1]} for row in found.busy.to_pylist()]
    idle = [
        {**row, "in": cause_words(row), "for": row["awaits"] or NOTHING} for row in found.idle.to_pylist()
    ]
    return [*({**row, "whole": True} for row in whole), *({**row, "whole": False} for row in [*busy, *idle])]
