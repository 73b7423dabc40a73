"""Outputs of steps, and whether all builds make the same ones, bit for bit."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from musetrace.errors import OverheadError

Bits = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Output:
    """A copy of what a step returned: its bits uint8[n], and how they are to be read."""

    bits: Bits
    type_name: str
    shape: tuple[int, ...]
    item_bytes: int
    dtype: np.dtype[Any] | None  # None where numpy has no such type

    @property
    def kind(self) -> str:
        """Type and shape in words, as ``float32 [16, 512]``."""
        return f"{self.type_name} [{', '.join(map(str, self.shape))}]"

    def place(self, index: int) -> str:
        """Where the flat element ``index`` stands."""
        return f"[{', '.join(str(int(part)) for part in np.unravel_index(index, self.shape))}]"

    def value(self, index: int) -> str:
        """The flat element ``index``; its bits where it cannot be read as a number."""
        raw = self.bits[index * self.item_bytes : (index + 1) * self.item_bytes]
        return "0x" + raw[::-1].tobytes().hex() if self.dtype is None else str(raw.view(self.dtype)[0])


def output_of(returned: object) -> Output | None:
    """A copy of a numpy array, torch tensor or bytes; None for None.

    Raises:
        OverheadError: it is none of these.
    """
    if returned is None:
        return None
    if isinstance(returned, (bytes, bytearray, memoryview)):
        bits = np.frombuffer(bytes(returned), dtype=np.uint8)
        return Output(bits, "bytes", bits.shape, 1, bits.dtype)
    if isinstance(returned, (np.ndarray, np.generic)) and not np.asarray(returned).dtype.hasobject:
        return _of_array(np.asarray(returned))
    # A program that returns a tensor has loaded torch.
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(returned, torch.Tensor):
        return _of_tensor(torch, returned)
    raise OverheadError(
        f"a step returned {type(returned).__name__}; return a numpy array, a torch tensor, bytes, or None "
        "for an output that is not compared"
    )


def _of_array(array: npt.NDArray[Any]) -> Output:
    bits = np.frombuffer(array.tobytes(), dtype=np.uint8)
    return Output(bits, array.dtype.name, array.shape, array.dtype.itemsize, array.dtype)


def _of_tensor(torch: Any, tensor: Any) -> Output:
    try:
        flat = tensor.detach().contiguous().reshape(-1)
        bits = flat.view(torch.uint8).cpu().numpy().copy()
    except (RuntimeError, TypeError) as error:
        line = " ".join(str(error).split())[:160]
        raise OverheadError(
            f"a step returned a tensor that cannot be compared bit for bit: {line}"
        ) from error
    name = str(tensor.dtype).removeprefix("torch.")
    try:
        dtype: np.dtype[Any] | None = np.dtype(name)
    except TypeError:
        dtype = None
    return Output(bits, name, tuple(tensor.shape), tensor.element_size(), dtype)


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
