"""Machine code read out of files: cubins made here by hand, as the ELF specification has them."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from musetrace.cli import main
from musetrace.errors import OverheadError
from musetrace.overhead.built_in.own_code import compare_own_code
from musetrace.overhead.machine_code import (
    KernelCode,
    compare,
    compare_files,
    kernels_of,
    plain_name,
    read_kernels,
)

Out = pytest.CaptureFixture[str]
CUDA, X86 = 190, 62
PROGRAM_BITS, STRING_TABLE, NO_BITS = 1, 3, 8
CODE = bytes(range(160))  # ten instructions
OFF = "_ZN9musetrace10megakernel10muse_layerILNS0_10LayerBuildE0EEEvNS0_11LayerParamsE"
HEAD = "_ZN9musetrace10megakernel9muse_headILNS0_10LayerBuildE0EEEvNS0_10HeadParamsE"


def elf(sections: dict[str, bytes], machine: int = CUDA) -> bytes:
    """A 64-bit little-endian ELF file: header, contents, names, table of sections."""
    names, table, content = b"\0", [bytes(64)], b""
    for name, data in sections.items():
        kind = NO_BITS if name == ".nv.shared" else PROGRAM_BITS
        place = (0, 1 << 40) if kind == NO_BITS else (64 + len(content), len(data))
        table.append(struct.pack("<IIQQQQIIQQ", len(names), kind, 0, 0, *place, 0, 0, 1, 0))
        names += name.encode() + b"\0"
        content += data if kind != NO_BITS else b""
    table.append(struct.pack("<IIQQQQIIQQ", 0, STRING_TABLE, 0, 0, 64 + len(content), len(names), 0, 0, 1, 0))
    content += names
    header = b"\x7fELF\x02\x01\x01" + bytes(9)
    header += struct.pack(
        "<HHIQQQIHHHHHH", 2, machine, 1, 0, 0, 64 + len(content), 0, 64, 56, 0, 64, len(table), len(table) - 1
    )
    assert len(header) == 64
    return header + content + b"".join(table)


def cubin(**kernels: bytes) -> bytes:
    return elf({f".text.{name}": code for name, code in kernels.items()})


def test_kernels_are_found_by_name_with_their_constants() -> None:
    content = elf(
        {
            ".nv.shared": b"",
            ".text.one": CODE,
            ".nv.constant0.one": b"parameters",
            ".nv.constant2.one": b"jumps",
            ".text.two": CODE[:32],
            ".nv.constant0.two": b"parameters",
        }
    )
    assert kernels_of(content) == {
        "one": KernelCode(CODE, ((".nv.constant2.", b"jumps"),)),
        "two": KernelCode(CODE[:32]),
    }


def test_kernels_are_found_inside_of_a_library() -> None:
    library = elf(
        {".text": b"host code", ".nv_fatbin": b"\x50\xed\x55\xba" + cubin(one=CODE) + cubin(two=CODE)}, X86
    )
    assert set(kernels_of(library)) == {"one", "two"}
    assert kernels_of(elf({".text.one": CODE}, X86)) == {}


@given(st.binary(max_size=400))
def test_anything_else_has_no_kernels(content: bytes) -> None:
    assert kernels_of(content) == {}


@settings(max_examples=300)
@given(st.data())
def test_a_damaged_cubin_is_read_or_not_but_never_crashes(data: st.DataObject) -> None:
    content = bytearray(cubin(one=CODE))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(content)))
    for name, kernel in kernels_of(bytes(content[:cut])).items():
        assert isinstance(name, str)
        assert len(kernel.code) <= len(content)


def test_the_first_instruction_that_differs_is_named() -> None:
    other = bytearray(CODE)
    other[53] ^= 1
    assert compare(KernelCode(CODE), KernelCode(CODE)) is None
    said = compare(KernelCode(CODE), KernelCode(bytes(other)))
    assert said == "from instruction 3 (0x30) on, in code of 160 and 160 bytes"
    said = compare(KernelCode(CODE), KernelCode(CODE[:128]))
    assert said == "from instruction 8 (0x80) on, in code of 160 and 128 bytes"
    constants = ((".nv.constant2.", b"a"),)
    assert compare(KernelCode(CODE, constants), KernelCode(CODE)) == "in the constants that the code reads"


def test_names_in_an_unnamed_namespace_lose_their_hashes() -> None:
    one = "_ZN9musetrace5probe47_GLOBAL__N__1d3832e9_14_stamp_probe_cu_c70ddd2d11stamp_probeEv"
    other = "_ZN9musetrace5probe47_GLOBAL__N__deadbeef_14_stamp_probe_cu_0123456711stamp_probeEv"
    assert plain_name(one) == plain_name(other) == "_ZN9musetrace5probe12_GLOBAL__N_111stamp_probeEv"
    assert plain_name("_Z6kernelv") == "_Z6kernelv"


def put(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def test_files_are_compared_by_name_and_a_lone_kernel_with_the_other(tmp_path: Path) -> None:
    both = put(tmp_path / "both", cubin(one=CODE, two=CODE))
    other = put(tmp_path / "other", cubin(one=CODE, two=CODE[:16], three=CODE))
    found = {kernel.kernel: kernel.difference for kernel in compare_files(both, other)}
    assert found["one"] is None
    assert found["two"] is not None
    assert found["three"] == "it is in other only"
    alone, renamed = put(tmp_path / "alone", cubin(a=CODE)), put(tmp_path / "renamed", cubin(b=CODE))
    (kernel,) = compare_files(alone, renamed)
    assert (kernel.kernel, kernel.code_bytes, kernel.difference) == ("a", 160, None)


def test_the_command_line_compares_two_files(tmp_path: Path, capsys: Out) -> None:
    off, same = put(tmp_path / "off", cubin(one=CODE)), put(tmp_path / "same", cubin(one=CODE))
    other = put(tmp_path / "other", cubin(one=CODE[:16]))
    assert main(["overhead", "--cubins", str(off), str(same)]) == 0
    assert "one: off and absent are the same, 160 bytes" in capsys.readouterr().out
    assert main(["overhead", "--cubins", str(off), str(other)]) == 3
    assert "DIFFERENT: one, from instruction 1" in capsys.readouterr().out
    assert main(["overhead", "--cubins", str(off), str(other), "--json", "-o", str(tmp_path / "o.json")]) == 3
    document = json.loads(capsys.readouterr().out)
    assert document == json.loads((tmp_path / "o.json").read_text())
    assert not document["equal"]


@pytest.mark.parametrize(
    ("files", "more", "code", "said"),
    [
        (("off", "missing"), [], 1, "missing: No such file or directory; name a cubin"),
        (("off", "text"), [], 1, "no kernel was found in"),
        (("off", "."), [], 1, "name a cubin"),
        (("two", "others"), [], 1, "no kernel of"),
        (("off", "off"), ["--rounds", "3"], 2, "--rounds does not fit: --cubins compares files"),
        (("off", "off"), ["--call", "a:b"], 2, "--call does not fit"),
    ],
)
def test_bad_files_are_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Out,
    files: tuple[str, str],
    more: list[str],
    code: int,
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    put(Path("off"), cubin(one=CODE))
    put(Path("text"), b"\x7fELF\x02\x01 no cubin")
    put(Path("two"), cubin(a=CODE, b=CODE))
    put(Path("others"), cubin(c=CODE, d=CODE))
    assert main(["overhead", "--cubins", *files, *more]) == code
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert said in err


def absent(name: str) -> str:
    return name.replace("LayerBuildE0E", "LayerBuildE4E")


def test_the_built_in_kernels_are_compared_in_their_library(tmp_path: Path) -> None:
    builds = {
        OFF: CODE,
        absent(OFF): CODE,
        OFF.replace("E0E", "E2E"): CODE[:16],
        HEAD: CODE[:32],
        absent(HEAD): CODE,
    }
    library = put(tmp_path / "_cuda.so", elf({".nv_fatbin": cubin(**builds)}, X86))
    layer, head = compare_own_code(library)
    assert (layer.kernel, layer.code_bytes, layer.difference) == ("muse_layer", 160, None)
    assert head.kernel == "muse_head"
    assert head.difference == "from instruction 2 (0x20) on, in code of 32 and 160 bytes"
    with pytest.raises(OverheadError, match="muse_head is not in old.so with and without stamps"):
        compare_own_code(put(tmp_path / "old.so", cubin(**{OFF: CODE, absent(OFF): CODE})))
    with pytest.raises(OverheadError, match="no kernel was found in"):
        read_kernels(put(tmp_path / "none.so", elf({".text": b""}, X86)))
