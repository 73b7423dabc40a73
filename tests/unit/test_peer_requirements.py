"""What stands in the way of several processes is one line, before anything is launched."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from types import ModuleType
from typing import Any

import pytest
import torch

from musetrace.errors import DeviceError, MusetraceError, UsageError
from musetrace.muse.config import PRESETS, preset
from musetrace.muse.engine import Engine
from musetrace.muse.peer_requirements import ProcessFacts, RankShare, own_facts, rank_share, require_agreement
from musetrace.muse.process_group import ProcessGroup
from musetrace.record.process_place import ProcessPlace, process_place
from tests.unit import fake_cuda

TORCHRUN = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return fake_cuda.install(monkeypatch, gpus=2)


def start(monkeypatch: pytest.MonkeyPatch, **changes: str) -> None:
    """As a process of torchrun."""
    for name, value in (TORCHRUN | changes).items():
        monkeypatch.setenv(name, value)


def refusal(kind: type[MusetraceError], model: object = "mini", **options: Any) -> str:
    with pytest.raises(kind) as caught:
        Engine(model, **({"device": "cuda"} | options))  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_process_is_alone_unless_torchrun_says_otherwise() -> None:
    assert process_place({}) is None
    assert process_place(TORCHRUN | {"WORLD_SIZE": "1"}) is None
    assert process_place(TORCHRUN) == ProcessPlace(process=1, processes=2, local_process=1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"RANK": None}, "WORLD_SIZE is 2 and RANK is not set; start the processes with torchrun"),
        ({"MASTER_PORT": None}, "MASTER_PORT is not set"),
        ({"LOCAL_RANK": "one"}, "LOCAL_RANK='one': not all are numbers"),
        ({"RANK": "2"}, "there is no process 2 of 2"),
    ],
)
def test_a_start_that_is_not_torchrun_s_is_refused(changes: Mapping[str, str | None], message: str) -> None:
    told = {name: value for name, value in (TORCHRUN | dict(changes)).items() if value is not None}
    with pytest.raises(UsageError, match=message):
        process_place(told)


def test_ranks_are_dealt_in_order() -> None:
    mini = preset("mini")
    assert rank_share(None, mini, 4) == RankShare(0, 4)
    assert rank_share(None, replace(mini, slice_tp=4), 4) == RankShare(0, 1)
    two = [rank_share(ProcessPlace(at, 2, at), mini, 4) for at in (0, 1)]
    assert two == [RankShare(0, 2), RankShare(2, 2)]
    assert rank_share(ProcessPlace(3, 4, 3), mini, 4) == RankShare(3, 1)


def test_what_processes_cannot_run_is_refused_before_they_meet(
    monkeypatch: pytest.MonkeyPatch, module: ModuleType
) -> None:
    monkeypatch.setitem(PRESETS, "slice", replace(preset("mini"), name="slice", slice_tp=2))
    start(monkeypatch)
    line = refusal(UsageError, "slice")
    assert "one rank that plays back what its peers would send; start it without torchrun" in line
    line = refusal(UsageError, device="cpu")
    assert "the CPU device holds all ranks in one process, and there are 2" in line
    start(monkeypatch, WORLD_SIZE="3")
    assert "4 ranks cannot be dealt to 3 processes evenly" in refusal(UsageError, tp=4)
    start(monkeypatch, LOCAL_RANK="2")
    line = refusal(DeviceError)
    assert "process 1 (LOCAL_RANK 2) has no GPU of its own: 2 can be seen" in line
    assert module.made == []
    assert module.chosen == []


class Told(ProcessGroup):
    """Process 0 of a group in which the others say this."""

    def __init__(self, *others: ProcessFacts) -> None:
        self.place = ProcessPlace(0, 1 + len(others), 0)
        self._others = others

    def exchange_any(self, mine: bytes, timeout_s: float = 0) -> list[bytes]:
        return [mine, *(json.dumps(asdict(other)).encode() for other in self._others)]


SETTINGS = {"tp": 2, "name": "mini", "blocks": 66, "layers": 8, "stop4": "sumsq", "seed": 0}


def test_processes_that_can_exchange_are_let_on(module: ModuleType) -> None:
    mine = own_facts(SETTINGS)
    assert mine.gpu == "GPU-0"
    require_agreement(Told(replace(mine, gpu="GPU-1")), mine)


@pytest.mark.parametrize("name", SETTINGS)
def test_the_setting_that_differs_is_named(module: ModuleType, name: str) -> None:
    mine = own_facts(SETTINGS)
    other = replace(mine, gpu="GPU-1", settings=SETTINGS | {name: 7})
    with pytest.raises(UsageError, match=f"do not agree on {name}: process 0 has .*, process 1 7"):
        require_agreement(Told(other), mine)
    newer = replace(mine, gpu="GPU-1", settings=SETTINGS | {"version": "2"})
    with pytest.raises(UsageError, match="do not agree on version: process 0 has None, process 1 '2'"):
        require_agreement(Told(newer), mine)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"host": "elsewhere"}, "process 1 runs on another host"),
        ({"gpu": "GPU-0"}, "process 1 has the same GPU .GPU-0., and every process needs its own"),
        ({"gpu": "GPU-5"}, "the GPU of process 1 .GPU-5. cannot be seen from here"),
    ],
)
def test_gpus_that_cannot_exchange_are_refused(
    module: ModuleType, changes: dict[str, str], message: str
) -> None:
    mine = own_facts(SETTINGS)
    with pytest.raises(DeviceError, match=message):
        require_agreement(Told(replace(mine, **({"gpu": "GPU-1"} | changes))), mine)  # type: ignore[arg-type]


def test_gpus_without_peer_access_are_refused(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def no_access(*gpus: int) -> bool:
        asked.append(gpus)
        return False

    monkeypatch.setattr(torch.cuda, "can_device_access_peer", no_access)
    mine = own_facts(SETTINGS)
    with pytest.raises(DeviceError, match="GPU 0 has no peer access to GPU 1 of process 1"):
        require_agreement(Told(replace(mine, gpu="GPU-1")), mine)
    assert asked == [(0, 1)]
