"""Machine code of kernels, read out of the files that hold it; no tool of CUDA and no GPU is needed.

A cubin is an ELF file with a section ``.text.KERNEL`` for each kernel, and one ``.nv.constantN.KERNEL`` for
what the kernel reads from bank N; bank 0 has the parameters, which no code is made of. Objects and shared
libraries hold cubins as they are, unless they were told to compress them.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from musetrace.errors import OverheadError

INSTRUCTION_BYTES = 16  # since Volta

_MAGIC = b"\x7fELF\x02\x01"  # 64 bits, little endian
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_CUDA_MACHINE = 190
_NO_BITS = 8  # a section that takes no room in the file
_CODE = ".text."
_CONSTANTS = re.compile(r"\.nv\.constant[1-9]\d*\.")
# What nvcc calls the unnamed namespace: its length, then a name with hashes of the file and of its path.
_UNNAMED = re.compile(r"(\d+)(?=_GLOBAL__N__)")


@dataclass(frozen=True)
class KernelCode:
    """One kernel: its instructions, and its constants by bank."""

    code: bytes
    constants: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True)
class CodeComparison:
    """Two kernels; ``difference`` says where they differ first, None where they are the same."""

    kernel: str
    code_bytes: int
    difference: str | None

    def to_json(self) -> dict[str, Any]:
        """A dict of plain JSON types."""
        return {"kernel": self.kernel, "code_bytes": self.code_bytes, "difference": self.difference}


def kernels_of(content: bytes) -> dict[str, KernelCode]:
    """All kernels of a cubin, or of an object or library that holds cubins, by their mangled name."""
    found: dict[str, KernelCode] = {}
    for sections in _cubins(content):
        for section, code in sections.items():
            name = section.removeprefix(_CODE)
            if name != section:
                banks = [
                    (bank.group(), data)
                    for other, data in sorted(sections.items())
                    if (bank := _CONSTANTS.match(other)) and other[bank.end() :] == name
                ]
                found[name] = KernelCode(code, tuple(banks))
    return found


def read_kernels(path: Path) -> dict[str, KernelCode]:
    """:func:`kernels_of` of a file.

    Raises:
        OverheadError: it cannot be read, or holds no kernel.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise OverheadError(f"cannot read {path}: {error.strerror}; name a cubin") from error
    found = kernels_of(content)
    if not found:
        raise OverheadError(
            f"no kernel was found in {path}; make a cubin with nvcc -cubin, or build with --no-compress"
        )
    return found


def compare(off: KernelCode, absent: KernelCode) -> str | None:
    """Where two kernels first differ, in words; None when they are the same."""
    if off.code != absent.code:
        shared = min(len(off.code), len(absent.code))
        same = next((at for at in range(shared) if off.code[at] != absent.code[at]), shared)
        number = same // INSTRUCTION_BYTES
        sizes = f"{len(off.code):,} and {len(absent.code):,} bytes"
        return f"from instruction {number} (0x{number * INSTRUCTION_BYTES:x}) on, in code of {sizes}"
    if off.constants != absent.constants:
        return "in the constants that the code reads"
    return None


def compare_files(off: Path, absent: Path) -> list[CodeComparison]:
    """Compare all kernels of two files, matched by name, or the only ones where each has one.

    Raises:
        OverheadError: a file holds no kernel, or they have none in common.
    """
    one, other = (
        {plain_name(name): code for name, code in read_kernels(path).items()} for path in (off, absent)
    )
    if len(one) == len(other) == 1:
        (name,) = one
        return [_compared(name, one[name], *other.values())]
    if not one.keys() & other.keys():
        raise OverheadError(
            f"no kernel of {off} has the name of one of {absent}; compare files of one kernel each, or of "
            "the same names"
        )
    found = [_compared(name, one[name], other[name]) for name in sorted(one.keys() & other.keys())]
    for path, only in ((off, one.keys() - other.keys()), (absent, other.keys() - one.keys())):
        found += [
            CodeComparison(name, len({**one, **other}[name].code), f"it is in {path.name} only")
            for name in sorted(only)
        ]
    return found


def _compared(name: str, off: KernelCode, absent: KernelCode) -> CodeComparison:
    return CodeComparison(name, len(off.code), compare(off, absent))


def plain_name(mangled: str) -> str:
    """A mangled name without the hashes that nvcc puts into the unnamed namespace's."""
    found = _UNNAMED.search(mangled)
    while found is not None:
        end = found.end() + int(found.group(1))
        mangled = f"{mangled[: found.start()]}12_GLOBAL__N_1{mangled[end:]}"
        found = _UNNAMED.search(mangled)
    return mangled


def _cubins(content: bytes) -> Iterator[dict[str, bytes]]:
    """The sections of each CUDA ELF file that begins somewhere in the content."""
    at = content.find(_MAGIC)
    while at >= 0:
        sections = _sections(memoryview(content)[at:])
        if sections:
            yield sections
        at = content.find(_MAGIC, at + 1)


def _sections(elf: memoryview) -> dict[str, bytes]:
    """The sections of an ELF file by name; none when it is not CUDA's, or cut."""
    if len(elf) < _HEADER.size:
        return {}
    _, _, machine, *_, table, _, _, _, _, size, count, names_at = _HEADER.unpack_from(elf)
    if machine != _CUDA_MACHINE or size != _SECTION.size or names_at >= count:
        return {}
    if table + count * size > len(elf):
        return {}
    headers = [_SECTION.unpack_from(elf, table + number * size) for number in range(count)]
    if any(header[1] != _NO_BITS and header[4] + header[5] > len(elf) for header in headers):
        return {}
    names = bytes(elf[headers[names_at][4] : headers[names_at][4] + headers[names_at][5]])
    return {
        names[header[0] :].partition(b"\0")[0].decode(errors="replace"): bytes(
            elf[header[4] : header[4] + header[5]]
        )
        for header in headers
        if header[1] != _NO_BITS
    }
