"""The layer kernel's machine code, compiled here and read as a file: no GPU is needed. About 15 s of nvcc."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

import pytest

NVCC = shutil.which("nvcc")
pytestmark = pytest.mark.skipif(NVCC is None, reason="nvcc is not on PATH")

OFF_BUILD = "csrc/megakernel/layer_off.cu"
PUBLIC_HEADER = "tests/native/stamp_header.cu"
NO_STAMPS = "-DMUSETRACE_NO_STAMPS"
OPTIONS = ["-std=c++17", "--expt-relaxed-constexpr", "-arch=sm_90a", "-I", "csrc", "-I", "csrc/include"]

ELF64_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
ELF64_SECTION = struct.Struct("<IIQQQQIIQQ")


def compiled(repository: Path, source: str, to: Path, *options: str) -> bytes:
    """What nvcc makes of a source; the suffix of ``to`` says what: .ptx or .cubin."""
    command = [str(NVCC), *OPTIONS, *options, f"-{to.suffix[1:]}", source, "-o", str(to)]
    done = subprocess.run(command, cwd=repository, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return to.read_bytes()


def machine_code(cubin: bytes) -> dict[str, bytes]:
    """The .text sections of an ELF file, by name: one for each kernel."""
    magic, *_, offset, _, _, _, _, size, count, names_at = ELF64_HEADER.unpack_from(cubin)
    assert magic[:6] == b"\x7fELF\x02\x01"  # 64 bits, little endian
    assert size == ELF64_SECTION.size
    sections = [ELF64_SECTION.unpack_from(cubin, offset + number * size) for number in range(count)]

    def content(section: tuple[int, ...]) -> bytes:
        return cubin[section[4] : section[4] + section[5]]

    names = content(sections[names_at])
    named = {names[s[0] : names.index(b"\0", s[0])].decode(): content(s) for s in sections}
    return {name: code for name, code in named.items() if name.startswith(".text.")}


def test_registers_move_from_the_single_warps_to_the_group(repository: Path, tmp_path: Path) -> None:
    ptx = compiled(repository, OFF_BUILD, tmp_path / "off.ptx").decode()
    moves = [line.split()[0] for line in ptx.splitlines() if line.strip().startswith("setmaxnreg")]
    assert sorted(moves) == ["setmaxnreg.dec.sync.aligned.u32", "setmaxnreg.inc.sync.aligned.u32"]


def test_the_off_build_has_the_machine_code_of_a_kernel_without_stamps(
    repository: Path, tmp_path: Path
) -> None:
    off = machine_code(compiled(repository, OFF_BUILD, tmp_path / "off.cubin"))
    none = machine_code(compiled(repository, OFF_BUILD, tmp_path / "none.cubin", NO_STAMPS))
    assert len(off) == 1
    (name,) = off
    assert "muse_layer" in name
    assert len(off[name]) > 10_000
    assert off == none


def test_the_comparison_sees_stamps(repository: Path, tmp_path: Path) -> None:
    """In the other builds, the same macro makes a difference."""

    def by_build(cubin: bytes) -> dict[str, bytes]:
        # In front of the mode, names have a hash of the source as it is compiled.
        return {name[name.index("StampModeE") :]: code for name, code in machine_code(cubin).items()}

    stamped = by_build(compiled(repository, PUBLIC_HEADER, tmp_path / "stamped.cubin"))
    none = by_build(compiled(repository, PUBLIC_HEADER, tmp_path / "none.cubin", NO_STAMPS))
    assert len(stamped) == 3
    assert stamped.keys() == none.keys()
    for mode in stamped:
        if not mode.startswith("StampModeE0"):
            assert len(stamped[mode]) > len(none[mode]) > 0
