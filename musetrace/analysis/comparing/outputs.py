"""Whether the steps of two runs made the same outputs, bit for bit."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from musetrace.analysis.spans.run_like import RunLike

COLUMN = "output"


@dataclass(frozen=True)
class Outputs:
    """``kept_a`` and ``kept_b`` steps have the hash of their output; of ``compared`` steps both runs have it.

    In ``equal`` of these it is the same, on every rank that both have it of; ``first_unlike`` is the number
    of the first step in which it is not, None where there is none.
    """

    kept_a: int
    kept_b: int
    compared: int
    equal: int
    first_unlike: int | None


def compare_outputs(a: RunLike, b: RunLike, ranks: Collection[int]) -> Outputs:
    """Compare the outputs of steps of the same number.

    It lies where steps of one number are not the same work: where the runs began at different places of a
    text. Behind the first step that differs the others do too when a step goes on from the one before.
    """
    of_a, of_b = (dict(_hashes(run, ranks)) for run in (a, b))
    shared = sorted({step for step, _ in of_a.keys() & of_b.keys()})
    unlike = sorted(
        {step for step, rank in of_a.keys() & of_b.keys() if of_a[step, rank] != of_b[step, rank]}
    )
    return Outputs(
        kept_a=len({step for step, _ in of_a}),
        kept_b=len({step for step, _ in of_b}),
        compared=len(shared),
        equal=len(shared) - len(unlike),
        first_unlike=unlike[0] if unlike else None,
    )


def _hashes(run: RunLike, ranks: Collection[int]) -> Iterator[tuple[tuple[int, int], str]]:
    """The hash of each (step, rank) that has one; a run of an older recorder has no such column."""
    for rank in ranks:
        steps = run.steps(rank)
        if COLUMN in steps.column_names:
            numbers, hashes = steps["step"].to_pylist(), steps[COLUMN].to_pylist()
            yield from (((step, rank), of) for step, of in zip(numbers, hashes, strict=True) if of)
