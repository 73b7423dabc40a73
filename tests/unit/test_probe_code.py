"""The machine code of the probe's kernels: bodies are as long as they say, absent stamps leave nothing."""

from __future__ import annotations

import itertools
import re
import struct
from pathlib import Path

import pytest

from tests.unit.test_device_code import NVCC, compiled, machine_code

pytestmark = pytest.mark.skipif(NVCC is None, reason="nvcc is not on PATH")

INSTRUCTION_BYTES = 16
FFMA = 0x23  # the low byte of the opcode of every form of FFMA, sm_90
CS2R = 0x805
SHORT_OF = 64  # instructions of a body that may stand before its first or behind its last clock read
BODY = re.compile(r"run_bodiesILj(\d+)ELj(\d+)E")


def runs_of(code: bytes, opcode: int) -> list[int]:
    """The lengths of the runs of an instruction."""
    low_bytes = [word & 0xFF for word, _ in struct.iter_unpack("<QQ", code)]
    runs = [(byte, len(list(group))) for byte, group in itertools.groupby(low_bytes)]
    return [length for byte, length in runs if byte == opcode]


def test_every_body_is_one_straight_line_of_its_size(repository: Path, tmp_path: Path) -> None:
    cubin = compiled(repository, "csrc/probe/body_probe.cu", tmp_path / "body.cubin")
    bodies = {}
    for name, code in machine_code(cubin).items():
        if found := BODY.search(name):
            bodies[int(found[1]), int(found[2])] = runs_of(code, FFMA)
    header = (repository / "csrc/probe/device_probe.h").read_text()
    told = header[header.index("kBodies[] = {") :].partition(";")[0]
    sizes = [(int(first), int(second)) for first, second in re.findall(r"\{(\d+), (\d+)\}", told)]
    assert {(20, 0), (100, 0), (200, 0), (20, 100), (100, 100)} <= set(sizes)
    assert set(bodies) == set(sizes)
    for pair, runs in bodies.items():
        wanted = [kib * 1024 // INSTRUCTION_BYTES for kib in pair if kib]
        assert sum(runs) == sum(wanted), pair
        long = [run for run in runs if run > SHORT_OF]
        assert len(long) == len(wanted), pair
        assert all(0 <= size - run <= SHORT_OF for size, run in zip(wanted, long, strict=True)), pair


def test_a_stream_whose_stamps_are_off_is_the_one_without_them(repository: Path, tmp_path: Path) -> None:
    stamped = machine_code(compiled(repository, "csrc/probe/stamp_cost.cu", tmp_path / "stamped.cubin"))
    absent = machine_code(compiled(repository, "csrc/probe/stamp_cost_absent.cu", tmp_path / "absent.cubin"))
    (without,) = absent.values()
    by_build = {name[name.index("StampModeE") :]: code for name, code in stamped.items()}
    assert len(by_build) == 4
    same = [build for build, code in by_build.items() if code == without]
    assert len(without) > 2000
    assert [build.startswith("StampModeE0") for build in same] == [True]


def test_no_clock_read_is_left_out(repository: Path, tmp_path: Path) -> None:
    """CS2R reads both clocks; 32 reads stand between the two of cycles that time them."""
    cubin = compiled(repository, "csrc/probe/clock_read_probe.cu", tmp_path / "read.cubin")
    reads = {
        name: sum(word & 0xFFF == CS2R for word, _ in struct.iter_unpack("<QQ", code))
        for name, code in machine_code(cubin).items()
        if "read_clock_in_a_row" in name
    }
    assert sorted(reads.values()) == [34, 34]
