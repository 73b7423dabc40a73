"""Whether all builds make the same outputs of steps, bit for bit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from musetrace.step_output import Output


def difference(got: Output | None, want: Output | None) -> str | None:
    """How an output differs from another, and in which element first; None when it does not."""
    if got is None or want is None:
        if got is want:
            return None
        return (
            "it returned nothing"
            if got is None
            else f"it returned {got.kind} where nothing was returned before"
        )
    if (got.type_name, got.shape) != (want.type_name, want.shape):
        return f"it is {got.kind}, not {want.kind}"
    if np.array_equal(got.bits, want.bits):
        return None
    other = (got.bits != want.bits).reshape(-1, want.item_bytes).any(axis=1)
    first = int(other.argmax())
    return (
        f"element {got.place(first)} is {got.value(first)}, not {want.value(first)}; "
        f"{int(other.sum()):,} of {other.size:,} elements differ"
    )


@dataclass
class OutputCheck:
    """Compares the output of each step with that of the first side that made it.

    ``first_differences`` has one sentence for each side that differs, by its name. ``compared`` counts
    outputs, ``missing`` steps that returned None; ``kinds`` are those seen.
    """

    compared: int = 0
    missing: int = 0
    kinds: list[str] = field(default_factory=list)
    first_differences: dict[str, str] = field(default_factory=dict)
    _references: dict[int, tuple[str, Output | None]] = field(default_factory=dict)

    def see(self, side: str, round_: str, step: int, output: Output | None) -> None:
        """Take an output of ``side``; ``round_`` says when it was made."""
        of, reference = self._references.setdefault(step, (side, output))
        if output is None and reference is None:
            self.missing += 1
            return
        self.compared += 1
        if output is not None and output.kind not in self.kinds:
            self.kinds.append(output.kind)
        found = difference(output, reference)
        if found is not None and side not in self.first_differences:
            self.first_differences[side] = f"{round_}, step {step}, against {of}: {found}"

    @property
    def equal(self) -> bool:
        """Whether no output differs; also where none could be compared."""
        return not self.first_differences

    def to_json(self) -> dict[str, Any]:
        """A dict of plain JSON types."""
        return {
            "equal": self.equal,
            "compared": self.compared,
            "not_compared": self.missing,
            "kinds": list(self.kinds),
            "first_differences": dict(self.first_differences),
        }
