"""Hashes of what steps make: how they are made, kept by both kinds of recordings, read, and compared."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import musetrace
from musetrace.analysis.comparing.outputs import Outputs, compare_outputs
from musetrace.muse.engine import Engine
from musetrace.record.recorder import Recorder
from musetrace.step_output import output_of
from musetrace.store import open_run, tables
from tests.builders import JournalBuilder, build_run_from_text, small_table
from tests.host_kernel import HostKernel
from tests.unit.fake_run import FakeRun
from tests.unit.planted_run import LENGTHS, planted

ONE_STEP = "r0 s0 l0 layer=0 sliding b0 w1 norm 1000 1900"


def digest(made: object) -> str:
    output = output_of(made)
    assert output is not None
    return output.digest()


def test_a_digest_is_the_hash_of_type_shape_and_bits() -> None:
    values = np.array([[1.0, -2.0]], dtype=np.float32)
    bits = bytes.fromhex("0000803f 000000c0")  # IEEE 754, little-endian
    expected = hashlib.blake2b(b"float32 [1, 2]" + bits, digest_size=16).hexdigest()
    assert digest(values) == expected
    assert digest(values[:, ::1].copy(order="F")) == expected
    others = [values.T, values.view(np.int32), values + 0, -values, bits, np.float32(1)]
    assert [digest(one) == expected for one in others] == [False, False, True, False, False, False]


def test_a_tensor_has_the_digest_of_the_array_that_it_is() -> None:
    torch = pytest.importorskip("torch")
    values = np.arange(6, dtype=np.int64).reshape(2, 3)
    assert digest(torch.from_numpy(values)) == digest(values)
    assert digest(torch.from_numpy(values).t()) == digest(values.T)
    assert len(digest(torch.zeros(3, dtype=torch.bfloat16))) == 32


def recorded(folder: Path, outputs: list[Any], **more: Any) -> Recorder:
    """A step of one launch for each output; None where nothing is given."""
    kernel = HostKernel(small_table(), 2)
    with musetrace.record(folder, **more) as rec:
        gemm = rec.attach(kernel.table, kernel.grid, name="gemm", device="cpu")
        for made in outputs:
            with rec.step() as step:
                with gemm.launch() as stamps:
                    kernel.run(stamps.ptr)
                if made is not None:
                    step.keep_output(made)
    return rec


def test_a_program_keeps_the_outputs_that_it_gives(tmp_path: Path) -> None:
    buffer = np.zeros(4, dtype=np.float32)
    recorded(tmp_path / "run", [b"tokens", None, buffer, b""])
    assert open_run(tmp_path / "run").steps(0)["output"].to_pylist() == [
        digest(b"tokens"),
        "",
        digest(buffer),
        digest(b""),
    ]


@pytest.mark.parametrize("stamps", ["off", "register"])
def test_outputs_are_kept_however_a_kernel_stamps(tmp_path: Path, stamps: str) -> None:
    recorded(tmp_path / "run", [b"a", b"b"], stamps=stamps)
    run = open_run(tmp_path / "run")
    assert (run.verdict, run.steps(0)["output"].to_pylist()) == ("complete", [digest(b"a"), digest(b"b")])
    assert run.table("steps", step=1)["output"].to_pylist() == [digest(b"b")]
    assert (run.steps(0)["spans"].to_pylist() == [0, 0]) == (stamps == "off")
    assert run.manifest["host_tick_ns"] >= 1


def test_an_output_is_read_at_the_end_of_its_step(tmp_path: Path) -> None:
    buffer, kernel = np.zeros(4, dtype=np.int32), HostKernel(small_table(), 2)
    with musetrace.record(tmp_path / "run") as rec:
        gemm = rec.attach(kernel.table, kernel.grid, name="gemm", device="cpu")
        for step in range(3):
            with rec.step() as of:
                of.keep_output(b"replaced by the next")
                of.keep_output(buffer)
                with gemm.launch() as stamps:
                    kernel.run(stamps.ptr)
                buffer[:] = step
    expected = [digest(np.full(4, step, dtype=np.int32)) for step in range(3)]
    assert open_run(tmp_path / "run").steps(0)["output"].to_pylist() == expected


def test_an_output_that_cannot_be_read_is_said_once_and_the_run_is_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rec = recorded(tmp_path / "run", [b"a", [1, 2], "text", b"b"])
    said = "outputs of steps are not kept: the output of a step is list; give a numpy array"
    assert capsys.readouterr().err.count(said) == 1
    assert rec.close().verdict == "complete"
    run = open_run(tmp_path / "run")
    assert run.steps(0)["output"].to_pylist() == [digest(b"a"), "", "", digest(b"b")]
    (report,) = (one for one in run.manifest["reports"] if "outputs" in one["text"])
    assert said in report["text"]


def test_a_recorder_that_is_off_takes_outputs_and_keeps_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MUSETRACE_OUTPUT", raising=False)
    with musetrace.record() as rec, rec.step() as step:
        step.keep_output(object())


@pytest.mark.usefixtures("one_torch_thread")
def test_the_built_in_step_keeps_its_logits_hash_in_every_build(tmp_path: Path) -> None:
    engine = Engine("mini", capacity=32, blocks=1)
    rows = [np.random.default_rng(step).standard_normal((16, 512), dtype=np.float32) for step in range(2)]
    logits: list[Any] = []
    for stamps in ("off", "register"):
        with musetrace.record(tmp_path / stamps, stamps=stamps) as recorder:
            engine.attach(recorder)
            for step, residual in enumerate(rows):
                engine.wait_for_room()
                logits.append(engine.verify_residual(residual, 0, step))
                engine.finish_step(step, 1 + step, 2 + step, 1)
        engine.detach()
    runs = [open_run(tmp_path / stamps) for stamps in ("off", "register")]
    for run in runs:
        for rank in run.ranks:
            assert run.steps(rank)["output"].to_pylist() == [digest(made) for made in logits[:2]]
    assert compare_outputs(*runs, runs[0].ranks) == Outputs(2, 2, 2, 2, None)
    assert logits[0].tobytes() != logits[1].tobytes()


@pytest.mark.parametrize("output", [7, "", "0x12", "A0", "a" * 65, None])
def test_a_hash_that_is_none_is_a_damaged_chunk(tmp_path: Path, output: object) -> None:
    builder = JournalBuilder(tmp_path / "run", small_table(), 1)
    builder.step(0, 1, 2, output=output)
    builder.end()
    run = open_run(tmp_path / "run")
    assert run.verdict == "damaged"
    assert any("output is not a hash" in note for note in run.notes)


def test_an_index_from_before_outputs_is_read_and_says_that_none_were_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = build_run_from_text(tmp_path / "new", ONE_STEP, small_table(), blocks=1)
    assert open_run(new).steps(0)["output"].to_pylist() == [""]
    old = build_run_from_text(tmp_path / "old", ONE_STEP, small_table(), blocks=1)
    with monkeypatch.context() as before:
        before.setattr(tables, "STEPS", tables.STEPS_SCHEMAS[1])
        open_run(old)
    made = (old / "steps" / "rank-0000.arrow").read_bytes()
    assert "output" not in open_run(old).steps(0).column_names
    assert (old / "steps" / "rank-0000.arrow").read_bytes() == made
    assert open_run(old).table("steps")["output"].to_pylist() == [None]
    assert compare_outputs(open_run(old), open_run(new), (0,)) == Outputs(0, 0, 0, 0, None)


class WithOutputs(FakeRun):
    """``made`` gives the hash of each (rank, step)."""

    made: Callable[[int, int], str]

    def steps(self, rank: int) -> pa.Table:
        plain = super().steps(rank)
        return plain.append_column("output", [[self.made(rank, step) for step in self.step_ids(rank)]])


def run_with(made: Callable[[int, int], str], steps: int = 6) -> WithOutputs:
    plain = planted(steps=steps, **LENGTHS)
    run = WithOutputs(plain.all_launches, plain.all_spans, plain.blocks, plain.ranks)
    run.made = made
    return run


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (lambda rank, step: f"{step}", Outputs(6, 6, 6, 6, None)),
        (lambda rank, step: f"{step}" if step < 4 else "other", Outputs(6, 6, 6, 4, 4)),
        (lambda rank, step: "other" if (rank, step) == (1, 2) else f"{step}", Outputs(6, 6, 6, 5, 2)),
        (lambda rank, step: f"{step}" if step % 2 else "", Outputs(6, 3, 3, 3, None)),
        (lambda rank, step: "", Outputs(6, 0, 0, 0, None)),
    ],
)
def test_outputs_are_equal_where_they_are_on_all_ranks(
    made: Callable[[int, int], str], expected: Outputs
) -> None:
    assert compare_outputs(run_with(lambda rank, step: f"{step}"), run_with(made), (0, 1)) == expected


def test_steps_that_one_run_has_are_not_compared() -> None:
    found = compare_outputs(run_with(lambda rank, step: "x", 6), run_with(lambda rank, step: "x", 9), (0,))
    assert found == Outputs(6, 9, 6, 6, None)
