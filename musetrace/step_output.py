"""The output of a step: its bits, and a hash of them that a run can keep."""

from __future__ import annotations

import hashlib
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from musetrace.errors import OutputError, one_line

DIGEST_BYTES = 16

Bits = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Output:
    """A copy of what a step made: its bits uint8[n], and how they are to be read."""

    bits: Bits
    type_name: str
    shape: tuple[int, ...]
    item_bytes: int
    dtype: np.dtype[Any] | None  # None where numpy has no such type

    @property
    def kind(self) -> str:
        """Type and shape in words, as ``float32 [16, 512]``."""
        return f"{self.type_name} [{', '.join(map(str, self.shape))}]"

    def digest(self) -> str:
        """A hash of type, shape and bits, 32 hexadecimal digits: BLAKE2b (RFC 7693) of 16 bytes."""
        made = hashlib.blake2b(self.kind.encode(), digest_size=DIGEST_BYTES)
        made.update(self.bits.data)
        return made.hexdigest()

    def place(self, index: int) -> str:
        """Where the flat element ``index`` stands."""
        return f"[{', '.join(str(int(part)) for part in np.unravel_index(index, self.shape))}]"

    def value(self, index: int) -> str:
        """The flat element ``index``; its bits where it cannot be read as a number."""
        raw = self.bits[index * self.item_bytes : (index + 1) * self.item_bytes]
        return "0x" + raw[::-1].tobytes().hex() if self.dtype is None else str(raw.view(self.dtype)[0])


def output_of(made: object) -> Output | None:
    """A copy of a numpy array, torch tensor or bytes; None for None.

    Raises:
        OutputError: it is none of these.
    """
    if made is None:
        return None
    if isinstance(made, (bytes, bytearray, memoryview)):
        bits = np.frombuffer(bytes(made), dtype=np.uint8)
        return Output(bits, "bytes", bits.shape, 1, bits.dtype)
    if isinstance(made, (np.ndarray, np.generic)) and not np.asarray(made).dtype.hasobject:
        return _of_array(np.asarray(made))
    # A program that makes a tensor has loaded torch.
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(made, torch.Tensor):
        return _of_tensor(torch, made)
    raise OutputError(
        f"the output of a step is {type(made).__name__}; give a numpy array, a torch tensor, bytes, or None "
        "for an output that is not compared"
    )


def _of_array(array: npt.NDArray[Any]) -> Output:
    bits = np.frombuffer(array.tobytes(), dtype=np.uint8)
    return Output(bits, array.dtype.name, array.shape, array.dtype.itemsize, array.dtype)


def _of_tensor(torch: Any, tensor: Any) -> Output:
    try:
        if tensor.is_cuda:
            torch.cuda.synchronize(tensor.device)  # whatever the stream that it is made in
        flat = tensor.detach().contiguous().reshape(-1)
        bits = flat.view(torch.uint8).cpu().numpy().copy()
    except (RuntimeError, TypeError) as error:
        raise OutputError(
            f"the output of a step is a tensor that cannot be read bit for bit: {one_line(error)}"
        ) from error
    name = str(tensor.dtype).removeprefix("torch.")
    try:
        dtype: np.dtype[Any] | None = np.dtype(name)
    except TypeError:
        dtype = None
    return Output(bits, name, tuple(tensor.shape), tensor.element_size(), dtype)
