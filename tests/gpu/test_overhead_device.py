"""`musetrace overhead` on a real GPU: stamps are taken, and change nothing but the time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import musetrace
from musetrace.cli import main
from musetrace.overhead.built_in.measure import BuiltInOptions, measure_built_in
from musetrace.overhead.clocks import CudaStopwatch

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("one_torch_thread", "cuda")]

Out = pytest.CaptureFixture[str]
SIDES = ["off again", "absent", "register", "store", "recorded"]
SLICE = "muse-spark-open-tp8-slice"


@pytest.mark.parametrize(
    ("model", "tp", "layers", "launches"), [("mini", 2, None, 10), ("mini", 4, None, 10), (SLICE, None, 3, 5)]
)
def test_all_builds_make_the_same_bits_in_the_same_launches(
    model: str, tp: int | None, layers: int | None, launches: int
) -> None:
    result = measure_built_in(
        BuiltInOptions(
            device="cuda",
            model=model,
            tp=tp,
            layers=layers,
            context=512 if layers else None,
            rounds=6,
            steps=2,
        )
    )
    assert list(result.turns.sides) == SIDES
    assert result.sound, result.turns.outputs.first_differences
    assert result.turns.outputs.compared == (2 * 6 + 5 * 4 * 6) * 2
    assert {count.launches for count in result.facts.stamps.values()} == {launches}
    # Both ways stamp the same jobs: which ones depends on the rows alone.
    register, store = (result.facts.stamps[way] for way in ("register", "store"))
    assert register.all == store.all > 100 * launches
    assert isinstance(result.facts.recorder, dict)
    assert (result.facts.recorder["state"], result.facts.recorder["lost_launches"]) == ("closed", 0)
    for measure in ("launches", "step"):
        assert result.of("off again", measure).time_ns.median > 0
    # Of a step, the launches are a part.
    assert result.baseline_ns["launches"].median < result.baseline_ns["step"].median
    assert all(fit["local_bytes"] == 0 for fit in result.facts.subject["layer_kernel"].values())


def test_the_code_that_was_timed_is_that_of_a_source_without_stamps() -> None:
    result = measure_built_in(BuiltInOptions(device="cuda", layers=1, rounds=1, steps=1, recorder=False))
    assert result.code_equal is True, result.facts.machine_code


def test_the_command_line_measures_and_says_what_the_gpu_was_doing(tmp_path: Path, capsys: Out) -> None:
    file = tmp_path / "overhead.json"
    argv = ["--device", "cuda", "--layers", "2", "--rounds", "6", "--steps", "1", "-o", str(file)]
    assert main(["overhead", *argv]) == 0
    out = capsys.readouterr().out
    for words in ("H200", "off again", "equal bit for bit", "are the same"):
        assert words in out
    document = json.loads(file.read_text())
    assert set(document["conditions"]) == {"before", "after"}
    assert document["method"]["clocks"]["launches"]["resolution_ns"] == 500


def test_whole_steps_are_timed_beside_the_chain(capsys: Out) -> None:
    assert main(["overhead", "--whole-step", "--device", "cuda", "--rounds", "3", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    took = {one["name"]: one["device_ns"]["median"] for one in document["graphs"]}
    assert {"step, off", "draft", "verify", "accept", "chain, programmatic launch", "chain"} <= set(took)
    assert all(0 < median < 1e9 for median in took.values())
    assert document["launches"] == {"step": 21, "draft": 8, "verify": 11, "accept": 2}


def test_a_program_is_timed_with_events_in_its_stream() -> None:
    x = torch.ones(1024, 1024, device="cuda")
    stream = torch.cuda.Stream()

    def make(stamps: str) -> musetrace.TimedStep:
        def run() -> torch.Tensor:
            with torch.cuda.stream(stream):
                y = x @ x
                return y + 1 if stamps == "store" else y

        return musetrace.TimedStep(run, launches=1, stream=stream)

    result = musetrace.overhead(make, rounds=6)
    assert result.facts.clocks["step"].name == "CUDA events"
    assert "sm_mhz" in result.facts.conditions["before"] or "missing" in result.facts.conditions["before"]
    assert list(result.turns.outputs.first_differences) == ["store"]
    assert "element [0, 0] is 1025.0, not 1024.0" in result.turns.outputs.first_differences["store"]


@pytest.mark.parametrize("head_start", [False, True])
def test_a_stopwatch_sees_what_its_stream_does(head_start: bool) -> None:
    """A spin of 2 million cycles takes 0.9 ms or more, for no clock is faster than 2.2 GHz."""
    stream = torch.cuda.Stream()
    watch = CudaStopwatch(stream, head_start=head_start)
    watch.start()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(2_000_000)
    watch.stop()
    assert watch.elapsed_ns() > 900_000
