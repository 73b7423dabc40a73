"""`musetrace overhead` of the built-in step: for real on the CPU device, and on a GPU that runs nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from musetrace.cli import main
from musetrace.errors import DeviceError, UsageError
from musetrace.muse.config import PRESETS, preset
from musetrace.overhead.built_in import measure, recording
from musetrace.overhead.built_in.kept_regions import KeptRegions
from musetrace.overhead.built_in.measure import BuiltInOptions, measure_built_in
from musetrace.overhead.clocks import HostStopwatch
from musetrace.record import conditions
from tests.unit import fake_cuda

pytestmark = pytest.mark.usefixtures("one_torch_thread")

Out = pytest.CaptureFixture[str]
CPU_SIDES = ["off again", "register", "store", "recorded"]
GPU_SIDES = ["off again", "absent", "register", "store", "recorded"]
QUICK = ("--device", "cpu", "--rounds", "1", "--warm-up", "0")


def test_the_cpu_device_is_measured_for_real(
    tmp_path: Path, capsys: Out, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    assert (
        main(["overhead", *QUICK, "--model", "mini", "-o", str(tmp_path / "o.json"), "--width", "200"]) == 0
    )
    document = json.loads((tmp_path / "o.json").read_text())
    assert document["sound"]
    sides = [(entry["measure"], entry["side"]) for entry in document["comparisons"]]
    assert sides == [(measure, side) for measure in ("launches", "step") for side in CPU_SIDES]
    assert all(entry["time_ns"]["median"] > 0 for entry in document["comparisons"])
    assert (document["outputs"]["compared"], document["outputs"]["kinds"]) == (16, ["float32 [16, 1024]"])
    # 10 launches a step: entry, 8 layers, head; off has a turn pair beside each side.
    assert document["counts"]["launches"] == {"off": 80, **dict.fromkeys(CPU_SIDES, 20)}
    stamps = {entry["side"]: entry["stamps"] for entry in document["comparisons"]}
    assert stamps["register"] == stamps["store"]
    assert stamps["register"]["launches_that_stamped"] == 10
    assert (
        10 < stamps["register"]["stamps_of_slowest_blocks_per_step"] < stamps["register"]["stamps_per_step"]
    )
    recorder = document["recorder"]
    assert (recorder["state"], recorder["steps"], recorder["lost_launches"]) == ("closed", 2, 0)
    assert recorder["launches"] == 2 * 10 * 2
    assert recorder["bytes"] > 1000
    assert [path.name for path in tmp_path.iterdir()] == ["o.json"]  # the recording is gone
    out = capsys.readouterr().out
    for words in ("off again", "equal bit for bit: 16", "10 launches in each"):
        assert words in out


def test_a_build_that_leaves_a_launch_unstamped_is_found(
    capsys: Out, monkeypatch: pytest.MonkeyPatch
) -> None:
    lend = KeptRegions.acquire
    monkeypatch.setattr(
        KeptRegions, "acquire", lambda self, info: None if info.launch == 3 else lend(self, info)
    )
    argv = [
        "overhead",
        *QUICK,
        "--tp",
        "1",
        "--blocks",
        "1",
        "--stamps",
        "store",
        "--no-recorder",
        "--width",
        "200",
    ]
    assert main(argv) == 3
    out = capsys.readouterr().out
    assert "DIFFERENT: store: 9 of 10 launches stamped, so its cost is not shown" in out
    assert "not measured: left out" in out


@pytest.mark.parametrize(
    ("argv", "code", "said"),
    [
        (["--rounds", "0"], 2, "--rounds must be at least 1"),
        (["--model", "nothing"], 2, "nothing"),
        (["--layers", "2"], 2, "layers 2 is for the GPU"),
        (["--context", "64"], 2, "--context is for a slice"),
        (["--stamps", "payload"], 2, "the built-in step has no stamps 'payload'; there are register, store"),
        (["--tp", "3"], 2, "3"),
    ],
)
def test_what_makes_no_sense_is_refused_before_a_step(
    capsys: Out, monkeypatch: pytest.MonkeyPatch, argv: list[str], code: int, said: str
) -> None:
    monkeypatch.setattr(measure, "run_turns", None)
    assert main(["overhead", "--device", "cpu", *argv]) == code
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert said in err


def test_one_of_several_processes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "RANK": "0",
        "WORLD_SIZE": "2",
        "LOCAL_RANK": "0",
        "MASTER_ADDR": "a",
        "MASTER_PORT": "1",
    }.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UsageError, match="overhead measures one process"):
        measure_built_in(BuiltInOptions(device="cpu"))


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    slice_of_two = replace(preset("mini"), name="slice", slice_tp=2, max_position_embeddings=8192)
    monkeypatch.setitem(PRESETS, "slice", slice_of_two)
    monkeypatch.setattr(measure, "CudaStopwatch", lambda stream, head_start: HostStopwatch())
    monkeypatch.setattr(torch.cuda, "ExternalStream", lambda address: address)
    monkeypatch.setattr(fake_cuda.FakeMuseDevice, "insists_on_cleared", False)
    return fake_cuda.install(monkeypatch)


@pytest.mark.parametrize(("model", "ranks"), [("mini", 2), ("slice", 1)])
def test_one_engine_serves_all_builds_of_a_gpu(module: ModuleType, model: str, ranks: int) -> None:
    result = measure_built_in(
        BuiltInOptions(device="cuda", model=model, layers=2, rounds=2, steps=3, warm_up=1)
    )
    (device,) = module.made
    assert [build for _, build in device.graphs] == ["off", "off", "absent", "register", "store", "register"]
    regions = [[address for _, _, address, _ in requests] for requests, _ in device.graphs]
    assert len({address for of_graph in regions for address in of_graph}) == 6 * 4  # none is shared
    assert [kind for kind, *_ in device.graphs[0][0]] == ["entry", "layer", "layer", "head"]
    assert list(result.turns.sides) == GPU_SIDES
    assert result.sound
    # Three steps in the warm-up and in each of two turns of two rounds; off beside each of the five.
    assert result.turns.counts.steps == {"off": 3 + 60, **dict.fromkeys(GPU_SIDES, 3 + 12)}
    assert set(result.turns.counts.launches.values()) == {4 * 63, 4 * 15}
    assert {side: count.launches for side, count in result.facts.stamps.items()} == {
        "register": 4,
        "store": 4,
    }
    assert isinstance(result.facts.recorder, dict)
    assert (result.facts.recorder["launches"], result.facts.recorder["lost_launches"]) == (4 * 15 * ranks, 0)
    assert result.facts.subject["layer_kernel"]["absent"] == {"registers": 168, "local_bytes": 0}
    assert result.code_equal is None
    assert "in no file" in str(result.facts.machine_code)


def test_builds_are_measured_where_the_disk_has_no_room_for_a_recording(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording.shutil, "disk_usage", lambda path: SimpleNamespace(free=1000))
    result = measure_built_in(
        BuiltInOptions(device="cuda", model="slice", layers=1, rounds=1, warm_up=0, stamps=("store",))
    )
    assert isinstance(result.facts.recorder, str)
    assert "free; name another place with TMPDIR" in result.facts.recorder
    assert result.turns.sides == ("off again", "absent", "store")


def test_each_step_of_a_turn_has_rows_of_its_own_and_each_turn_the_same(module: ModuleType) -> None:
    seen: list[bytes] = []
    put = fake_cuda.FakeMuseDevice.set_values

    def noting(self: Any, name: str, rank: int, layer: int, values: np.ndarray[Any, Any]) -> None:
        if name == "residual":
            seen.append(values.tobytes())
        put(self, name, rank, layer, values)

    fake_cuda.FakeMuseDevice.set_values = noting  # type: ignore[method-assign]
    try:
        options = BuiltInOptions(
            device="cuda", model="slice", layers=1, rounds=1, steps=2, warm_up=0, stamps=(), context=64
        )
        result = measure_built_in(options)
    finally:
        fake_cuda.FakeMuseDevice.set_values = put  # type: ignore[method-assign]
    assert result.turns.sides == ("off again", "absent")
    assert len(set(seen)) == 2
    assert seen == seen[:2] * (len(seen) // 2)
    assert result.facts.subject["position"] == 64
    assert {state[1] for state in module.made[0].log if state[0] == "state"} == {64}


def test_a_build_whose_logits_differ_is_found(
    module: ModuleType, capsys: Out, monkeypatch: pytest.MonkeyPatch
) -> None:
    replay, values = fake_cuda.FakeMuseDevice.replay, fake_cuda.FakeMuseDevice.values

    def noting(self: Any, graph: int) -> None:
        self.last = self.graphs[graph][1]
        replay(self, graph)

    def broken(self: Any, name: str, rank: int = 0, layer: int = 0) -> Any:
        got = values(self, name, rank, layer).copy()
        if name == "logits" and getattr(self, "last", "") == "store":
            got[7, 5] += 1
        return got

    monkeypatch.setattr(fake_cuda.FakeMuseDevice, "replay", noting)
    monkeypatch.setattr(fake_cuda.FakeMuseDevice, "values", broken)
    argv = ["--device", "cuda", "--layers", "1", "--rounds", "1", "--steps", "1", "--width", "200"]
    assert main(["overhead", *argv]) == 3
    out = capsys.readouterr().out
    assert "DIFFERENT: store, warm-up 0, step 0, against off: element [7, 5] is 6.0, not 5.0; 2 of" in out
    assert out.count("DIFFERENT") == 1


def test_a_launch_that_is_given_up_is_one_line(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    replay = fake_cuda.FakeMuseDevice.replay

    def lost(self: Any, graph: int) -> None:
        self.report = dict(fake_cuda.REPORT)
        replay(self, graph)

    monkeypatch.setattr(fake_cuda.FakeMuseDevice, "replay", lost)
    with pytest.raises(DeviceError, match="a launch was given up"):
        measure_built_in(BuiltInOptions(device="cuda", layers=1, rounds=1, steps=1))


SMI = "1785, 1980, 3201, 512.34, 700.00, 61, 0x0000000000000004\n"


def smi(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_the_state_of_the_gpu_is_read_before_and_after(
    tmp_path: Path, module: ModuleType, capsys: Out, monkeypatch: pytest.MonkeyPatch
) -> None:
    # An old driver, which knows the old name of the last field only.
    known = f'*GPU-GPU-0*throttle_reasons.active*) printf "{SMI}"'
    smi(tmp_path, f'case "$*" in {known};; *) echo "Field is not valid"; exit 2;; esac', monkeypatch)
    argv = ["--device", "cuda", "--layers", "1", "--rounds", "1", "--steps", "1", "--width", "200"]
    assert main(["overhead", *argv]) == 0
    out = capsys.readouterr().out
    for when in ("before", "after"):
        assert f"{when:<9}SM 1785 of 1980 MHz, 512 of 700 W, 61 C, held back by power cap\n" in out


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("exit 9", "it said nothing"),
        ("echo no devices were found; exit 6", "no devices were found"),
        ("echo 1, 2", "1, 2"),
    ],
)
def test_a_state_that_cannot_be_read_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, said: str
) -> None:
    smi(tmp_path, script, monkeypatch)
    assert conditions.gpu_conditions() == {"missing": f"nvidia-smi: {said}"}
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    assert conditions.gpu_conditions() == {"missing": "nvidia-smi is not on PATH"}


def test_a_recording_keeps_the_clocks_of_its_gpu(
    tmp_path: Path, module: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    smi(tmp_path, f'printf "{SMI}"', monkeypatch)
    assert conditions.clocks_now("cuda") == {
        **{"sm_mhz": 1785.0, "sm_most_mhz": 1980.0, "memory_mhz": 3201.0, "power_limit_w": 700.0},
        "throttled_by": ["power cap"],
    }
    idle = SMI.replace("0004", "0001")
    smi(tmp_path, f'printf "{idle}"', monkeypatch)
    assert conditions.clocks_now("cuda")["throttled_by"] == []  # it was idle, as before every recording
    smi(tmp_path, "exit 9", monkeypatch)
    assert conditions.clocks_now("cuda") == conditions.clocks_now("cpu") == {}


def test_a_state_without_numbers_is_read_as_far_as_it_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    smi(tmp_path, 'echo "1980, 1980, 2619, [N/A], [N/A], 40, [N/A]"', monkeypatch)
    read = conditions.gpu_conditions("GPU-1")
    assert (read["sm_mhz"], read["power_w"], read["temperature_c"]) == (1980.0, None, 40.0)
    assert "throttled_by" not in read
