"""`musetrace overhead --whole-step`: which graphs are replayed, in which order, and what the page says."""

from __future__ import annotations

import json
from dataclasses import replace
from types import ModuleType

import pytest
import torch

from musetrace.cli import main
from musetrace.muse.config import PRESETS, preset
from musetrace.muse.draft.config import DRAFTS, draft_of
from musetrace.overhead.built_in.whole_step import step_graphs
from musetrace.overhead.built_in.whole_step.measure import WholeStepOptions, measure_whole_step
from musetrace.overhead.clocks import HostStopwatch
from tests.unit import fake_cuda

pytestmark = pytest.mark.usefixtures("one_torch_thread")

Out = pytest.CaptureFixture[str]
GRAPHS = ["step, off", "step, register", "step, store", "draft", "verify", "accept"]


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    slice_of_two = replace(preset("mini"), name="slice", slice_tp=2, max_position_embeddings=8192)
    monkeypatch.setitem(PRESETS, "slice", slice_of_two)
    monkeypatch.setitem(DRAFTS, "slice", draft_of(preset("mini")))
    monkeypatch.setattr(step_graphs, "CudaStopwatch", lambda stream, head_start: HostStopwatch())
    monkeypatch.setattr(torch.cuda, "ExternalStream", lambda address: address)
    monkeypatch.setattr(fake_cuda.FakeMuseDevice, "insists_on_cleared", False)
    return fake_cuda.install(monkeypatch)


def test_all_graphs_are_replayed_in_turn_from_one_place(module: ModuleType) -> None:
    done: list[tuple[int, int]] = []
    step = measure_whole_step(
        WholeStepOptions(device="cuda", rounds=2), lambda now, of: done.append((now, of))
    )
    (device,), (chain,) = module.made, module.chains
    assert [time.name for time in step.times] == [*GRAPHS, "chain, programmatic launch", "chain"]
    assert [time.device_ns.count for time in step.times] == [4] * 8
    # The chain's are the second replays of its own clock, without the host's.
    assert [time.device_ns.median for time in step.times[6:]] == [0.5e6, 1e6]
    assert [time.queued_ns is None for time in step.times] == [False] * 6 + [True] * 2
    assert step.launches == {"step": 21, "draft": 8, "verify": 11, "accept": 2}
    builds = ["off", "register", "store", "off", "off", "off"]
    assert [build for _, build in device.graphs] == builds
    assert [len(requests) for requests, _ in device.graphs] == [21, 21, 21, 8, 11, 2]
    # Forward and backward, twice behind a round to warm up, each from position 96.
    assert device.log.count("replay") == 3 * 2 * 6
    assert device.step_state["top_k"] == 8
    assert chain.log[2:4] == ["capture pdl True True", "capture graph True True"]
    assert chain.log[4:] == ["time pdl", "time graph", "time graph", "time pdl"] * 3
    assert (chain.positions, step.kernels_of_chain) == ([96], 15)
    assert done == [(0, 2), (0, 2), (1, 2), (2, 2)]
    # One set of weights for both.
    for layer in range(8):
        addresses, is_global, is_bf16 = device.layers[0, layer]
        assert chain.layers[layer] == addresses | {"global_attention": is_global, "bf16_experts": is_bf16}


def test_what_a_step_takes_beyond_its_parts_is_of_neighbours(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    took = {name: 1000.0 * 2**number for number, name in enumerate([*GRAPHS, "chain"])}
    took["step, off"] = took["draft"] + took["verify"] + 77
    replay = step_graphs.StepGraphs.replay

    def scripted(graphs: step_graphs.StepGraphs, name: str) -> step_graphs.Replay:
        made = replay(graphs, name)
        return made if "chain" in name else step_graphs.Replay(took[name], 5.0)

    monkeypatch.setattr(step_graphs.StepGraphs, "replay", scripted)
    step = measure_whole_step(WholeStepOptions(device="cuda", rounds=3))
    assert (step.beyond_ns.median, step.beyond_ns.count) == (77, 6)
    assert {time.name: time.device_ns.median for time in step.times if "chain" not in time.name} == {
        name: took[name] for name in GRAPHS
    }


def test_the_page_and_the_document_of_a_slice(module: ModuleType, capsys: Out) -> None:
    argv = ["overhead", "--whole-step", "--device", "cuda", "--model", "slice", "--context", "4000"]
    assert main([*argv, "--rounds", "2"]) == 0
    page = " ".join(capsys.readouterr().out.split())
    assert "whole steps of slice, 1 of 2 ranks x 132 blocks" in page
    for word in ("draft with its tree", "embedding and verify", "chain, programmatic launch: verify 500.0"):
        assert word in page
    assert "21 a step: 8 of the draft, 11 of verify, 2 behind it; the chain has 17 kernels a layer" in page
    assert "one GPU plays all 2 ranks" in page
    assert "too few rounds for a 95 % interval: use --rounds 3" in page
    assert module.chains[0].loopback
    assert module.chains[0].positions == [4000]
    assert main([*argv, "--rounds", "3", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["format"] == "musetrace whole step 1"
    assert [one["name"] for one in document["graphs"]] == [*GRAPHS, "chain, programmatic launch", "chain"]
    assert document["subject"]["context"] == 4000


def test_several_ranks_have_no_chain_beside_them(module: ModuleType, capsys: Out) -> None:
    assert main(["overhead", "--whole-step", "--device", "cuda", "--tp", "2", "--rounds", "1"]) == 0
    page = " ".join(capsys.readouterr().out.split())
    assert "no chain stands beside: it is one rank, so use --tp 1" in page
    assert not module.chains


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--device", "cpu"], "whole steps are timed as CUDA graphs; on the CPU device record a run"),
        (["--device", "cuda", "--rounds", "0"], "--rounds must be at least 1, not 0"),
        (
            ["--device", "cuda", "--context", "5"],
            "--context is for a slice; model mini stands behind 96 tokens",
        ),
        (["--device", "cuda", "--tp", "3"], "cannot be shared by 3 ranks"),
        (["--stamps", "store"], "--stamps does not fit: --whole-step replays graphs of all builds"),
        (["--call", "a:b"], "--call does not fit"),
        (["--cubins", "a", "b"], "--whole-step does not fit: --cubins compares files"),
    ],
)
def test_what_cannot_be_timed_is_refused_in_one_line(
    module: ModuleType, capsys: Out, argv: list[str], said: str
) -> None:
    assert main(["overhead", "--whole-step", *argv]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_one_of_several_processes_is_refused(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: Out
) -> None:
    for name, value in (
        ("RANK", "0"),
        ("WORLD_SIZE", "2"),
        ("LOCAL_RANK", "0"),
        ("MASTER_ADDR", "a"),
        ("MASTER_PORT", "1"),
    ):
        monkeypatch.setenv(name, value)
    assert main(["overhead", "--whole-step", "--device", "cuda"]) == 2
    assert "overhead measures one process; start it without torchrun" in capsys.readouterr().err
