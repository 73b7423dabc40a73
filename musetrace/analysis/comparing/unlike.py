"""In what two runs were not made alike: each a sentence that stands before any of their differences."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from musetrace.analysis.answer import tick_ns
from musetrace.analysis.certainty.bootstrap import LEAST_VALUES
from musetrace.analysis.certainty.rank_clocks import alignment_error_ns
from musetrace.analysis.spans.run_like import RunLike
from musetrace.job_table import JobTable

_SECTIONS = ("device", "clock", "clocks", "model", "routing", "build", "stamps")
_LONGEST = 40
# The clocks of a GPU move by themselves; so far they do not matter.
_CLOCKS_ALIKE = 0.02


def unlike(a: RunLike, b: RunLike) -> list[str]:
    """What differs in the conditions of two runs, what they lost, and what is too little of them."""
    found = [sentence for section in _SECTIONS for sentence in _section(section, a, b)]
    for name, of in (("ranks", _ranks), ("blocks", _blocks), ("layers", _layers)):
        if of(a) != of(b):
            found.append(f"{name}: {of(a)} in A, {of(b)} in B")
    found += _jobs(a.job_table, b.job_table)
    for which, run in (("A", a), ("B", b)):
        found += [f"{which} {sentence}" for sentence in _lacks(run)]
    return found


def _section(name: str, a: RunLike, b: RunLike) -> Iterator[str]:
    first, second = a.manifest.get(name), b.manifest.get(name)
    if not (isinstance(first, dict) and isinstance(second, dict)):
        if (first or None) != (second or None):
            yield f"{name}: {_short(first or None)} in A, {_short(second or None)} in B"
        return
    for key in dict.fromkeys((*first, *second)):
        one, other = first.get(key), second.get(key)
        # How stamps are kept is a section of its own.
        if (name, key) != ("build", "stamps") and not _is_alike(name, one, other):
            yield f"{name} {key}: {_short(one)} in A, {_short(other)} in B"


def _is_alike(name: str, first: Any, second: Any) -> bool:
    if name == "clocks" and all(isinstance(one, (int, float)) for one in (first, second)):
        return bool(abs(first - second) <= _CLOCKS_ALIKE * max(abs(first), abs(second)))
    return bool(first == second)


def _short(value: Any) -> str:
    if value is None:
        return "not known"
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def _ranks(run: RunLike) -> str:
    shown = [str(rank) for rank in run.ranks]
    return " ".join(shown[:8]) + (" ..." if len(shown) > 8 else "") if shown else "none"


def _blocks(run: RunLike) -> str:
    shapes = {kernel.name: kernel.blocks for kernel in run.job_table.kernels}
    return _short(shapes) if shapes else str(run.blocks)


def _layers(run: RunLike) -> str:
    """The distinct layers of each kind of launch."""
    layers: dict[str, set[int]] = {}
    for rank in run.ranks:
        launches = run.launches(rank)
        for kind, layer in zip(launches["kind"].to_pylist(), launches["layer"].to_pylist(), strict=True):
            layers.setdefault(kind, set()).add(layer)
    return ", ".join(f"{len(layers[kind])} {kind}" for kind in sorted(layers)) or "none"


def _jobs(a: JobTable, b: JobTable) -> Iterator[str]:
    if a.name != b.name:
        yield f"job table: {_short(a.name)} in A, {_short(b.name)} in B"
    elif a.jobs != b.jobs:
        only = [
            len({one.name for one in of.jobs} - {two.name for two in other.jobs})
            for of, other in ((a, b), (b, a))
        ]
        told = (
            f"{only[0]} jobs in A only, {only[1]} in B only" if any(only) else "jobs of the same names differ"
        )
        yield f"job table {_short(a.name)}: {told}"


def _lacks(run: RunLike) -> Iterator[str]:
    lost = {name: number for name, number in run.losses.items() if name != "missing_ranks" and number}
    if lost:
        yield "lost " + ", ".join(f"{name} {number:,}" for name, number in lost.items())
    if missing := run.losses["missing_ranks"]:
        yield f"lacks {len(missing)} ranks: {', '.join(map(str, missing[:8]))}"
    steps = max((len(run.step_ids(rank)) for rank in run.ranks), default=0)
    if steps < LEAST_VALUES:
        yield f"has {steps} {'step' if steps == 1 else 'steps'}: fewer than {LEAST_VALUES} tell nothing"
    if alignment_error_ns(run) is None:
        yield "has ranks whose clocks are not aligned: each is compared by its own clock"
    if tick_ns(run) is None:
        yield "has a clock of unknown tick: nothing can be told"
