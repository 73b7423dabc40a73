"""Files in the safetensors format: parts of tensors are read, and nothing else.

A file is the length of its header (8 bytes, little-endian), the header in JSON (name to type, shape and
place) and the tensors' bytes. A checkpoint is a folder with ``model.safetensors``, or with several files and
``model.safetensors.index.json``, which says in which file a tensor is.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

from musetrace.errors import UsageError

# What a model's own tensors are kept as; other types may be in a file, but are not read.
DTYPES = {
    "BF16": torch.bfloat16,
    "F32": torch.float32,
    "U8": torch.uint8,
    "F8_E4M3": torch.float8_e4m3fn,
}
# The limit of the format's own library.
MAX_HEADER_BYTES = 100_000_000
_ONE_FILE, _INDEX = "model.safetensors", "model.safetensors.index.json"

Range = tuple[int, int]


@dataclass(frozen=True)
class StoredTensor:
    """A tensor in a file; its bytes begin at ``offset``."""

    path: Path
    dtype: str
    shape: tuple[int, ...]
    offset: int


class Safetensors:
    """The tensors of a checkpoint's folder, by name. Only headers are read when it is opened.

    Raises:
        UsageError: there is no checkpoint, or a file of it is cut, damaged or missing.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tensors: dict[str, StoredTensor] = {}
        for path in _files(folder):
            for name, tensor in _header(path).items():
                if name in self.tensors:
                    raise UsageError(f"tensor {name[:200]!r} is in two files of the checkpoint {folder}")
                self.tensors[name] = tensor

    def read(self, name: str, *ranges: Range | None) -> Tensor:
        """A tensor, or the part of it within a range of each of its first dimensions (None: all of it).

        Raises:
            UsageError: the file cannot be read any more.
        """
        tensor = self.tensors[name]
        cuts = [*ranges, *[None] * (len(tensor.shape) - len(ranges))]
        whole = [(0, size) if cut is None else cut for cut, size in zip(cuts, tensor.shape, strict=True)]
        shape = tuple(end - begin for begin, end in whole)
        made = torch.empty(shape, dtype=DTYPES[tensor.dtype])
        buffer: memoryview = made.view(torch.uint8).reshape(-1).numpy().data
        try:
            with tensor.path.open("rb") as file:
                at = 0
                for offset, length in _runs(tensor, whole, made.element_size()):
                    _read_into(file, offset, buffer[at : at + length])
                    at += length
        except OSError as error:
            raise UsageError(f"{tensor.path} cannot be read: {error.strerror or error}") from None
        return made


def write_safetensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write one file; the tensors are contiguous and of the types of :data:`DTYPES`."""
    names = {dtype: name for name, dtype in DTYPES.items()}
    header: dict[str, Any] = {}
    end = 0
    for name, tensor in tensors.items():
        begin, end = end, end + tensor.numel() * tensor.element_size()
        header[name] = {
            "dtype": names[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [begin, end],
        }
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for tensor in tensors.values():
            file.write(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())


def _files(folder: Path) -> list[Path]:
    if (folder / _ONE_FILE).is_file():
        return [folder / _ONE_FILE]
    index = folder / _INDEX
    if not index.is_file():
        raise UsageError(f"{folder} is no checkpoint: it has neither {_ONE_FILE} nor {_INDEX}")
    try:
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        raise UsageError(f"{index} cannot be read: it has no weight_map of names to files") from None
    # Only names within the folder: the index is somebody else's.
    wrong = next((name for name in names if not isinstance(name, str) or Path(name).name != name), None)
    missing = next((name for name in names if wrong is None and not (folder / name).is_file()), None)
    if wrong is not None or missing is not None:
        raise UsageError(f"{index} names {wrong or missing!r}, which is not a file of {folder}")
    return [folder / name for name in names]


def _header(path: Path) -> dict[str, StoredTensor]:
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if not 0 < length <= min(size - 8, MAX_HEADER_BYTES):
                raise UsageError(f"{path} is no safetensors file: its header would have {length} bytes")
            header = json.loads(file.read(length))
        entries = {name: entry for name, entry in header.items() if name != "__metadata__"}
        return {name: _stored(path, entry, 8 + length, size) for name, entry in entries.items()}
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise UsageError(f"{path} is no safetensors file: its header is damaged") from None


def _stored(path: Path, entry: Mapping[str, Any], data: int, size: int) -> StoredTensor:
    shape = tuple(int(length) for length in entry["shape"])
    begin, end = (int(place) for place in entry["data_offsets"])
    dtype = str(entry["dtype"])
    if min(shape, default=0) < 0 or not 0 <= begin <= end:
        raise ValueError
    if dtype in DTYPES and end - begin != math.prod(shape) * DTYPES[dtype].itemsize:
        raise ValueError
    if data + end > size:
        raise UsageError(f"{path} is cut: it has {size} bytes, and its header speaks of {data + end}")
    return StoredTensor(path, dtype, shape, data + begin)


def _runs(tensor: StoredTensor, whole: list[Range], item_bytes: int) -> Iterator[Range]:
    """(offset, bytes) of the contiguous pieces of a part, in order."""
    cut = max(
        (at for at, (of, size) in enumerate(zip(whole, tensor.shape, strict=True)) if of != (0, size)),
        default=0,
    )
    strides = [math.prod(tensor.shape[at + 1 :]) * item_bytes for at in range(len(tensor.shape))]
    if not strides:
        yield tensor.offset, item_bytes
        return
    begin, end = whole[cut]
    for place in product(*(range(*of) for of in whole[:cut])):
        outer = sum(index * stride for index, stride in zip(place, strides, strict=False))
        yield tensor.offset + outer + begin * strides[cut], (end - begin) * strides[cut]


def _read_into(file: BinaryIO, offset: int, buffer: memoryview) -> None:
    file.seek(offset)
    if file.readinto(buffer) != len(buffer):  # type: ignore[attr-defined]
        raise OSError("the file became shorter")
