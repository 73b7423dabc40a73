"""Two processes that share a model: what they tell each other, and what becomes of one if the other fails."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import musetrace
from musetrace.muse.config import preset
from musetrace.muse.draft.config import draft_of
from musetrace.muse.launch_plan import gpu_step_plan
from musetrace.muse.process_group import whole_milliseconds
from tests.unit import fake_cuda

MINI = preset("mini")
PROCESSES = 2
TIMEOUT_S = 120
# mini's 1024 words, a quarter to each of four ranks; the fake's logits are the word's place plus the rank.
LOGITS = [[rank, 255.0 + rank] for rank in range(4)]
SENTENCE = "rank 1 block 3 warp 4 waited 0.2 s in stop1_wait_ranks for o_proj_send (0 of 1 arrived)"

Outcomes = dict[str, list[Any]]


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def environment(process: int, port: int) -> dict[str, str]:
    """As torchrun sets it."""
    places = {"RANK": process, "LOCAL_RANK": process, "WORLD_SIZE": PROCESSES, "MASTER_PORT": port}
    told = {name: str(value) for name, value in places.items()} | {"MASTER_ADDR": "127.0.0.1"}
    return os.environ | told | {"OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("peers")


@pytest.fixture(scope="module")
def outcomes(repository: Path, folder: Path) -> Outcomes:
    """By scenario: what came out of it in each process; None where the process was gone."""
    port = free_port()
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.unit.peer_program", str(folder)],
            env=environment(process, port),
            cwd=repository,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for process in range(PROCESSES)
    ]
    by_scenario: Outcomes = {}
    errors = []
    try:
        for process, program in enumerate(started):
            out, err = program.communicate(timeout=TIMEOUT_S)
            errors.append(err)
            for line in out.splitlines():
                result = json.loads(line)
                by_scenario.setdefault(result.pop("scenario"), [None] * PROCESSES)[process] = result
    finally:
        for program in started:
            program.kill()
    assert "a_killed_process" in by_scenario, errors
    return by_scenario


def test_every_process_gets_the_logits_of_all_ranks(outcomes: Outcomes) -> None:
    for process, result in enumerate(outcomes["a_pass"]):
        assert result["logits"] == [LOGITS, LOGITS]
        assert result["held"] == [2 * process, 2, 2, fake_cuda.SMS // 2]


def test_every_process_has_its_own_gpu_and_maps_the_others_ranks(outcomes: Outcomes) -> None:
    for process, result in enumerate(outcomes["a_pass"]):
        assert set(result["gpu"]) == {process}
        assert result["peers"] == [f"rank {rank:3d}" for rank in range(4)]
        assert result["boxes"], "small messages go by sockets"
        log = result["log"]
        first_launch = log.index(["entry", 0, "off"])
        assert log.index("handles") < log.index("connect") < first_launch
        assert log[-2:] == ["disconnect", "withdraw"]
        assert "reset" not in log


def test_processes_that_share_a_model_record_one_run(outcomes: Outcomes, folder: Path) -> None:
    first, second = outcomes["a_recorded_run"]
    for process, result in enumerate((first, second)):
        assert result["verdict"] == "complete"
        assert result["launches"] == [2, 2 * 3 * 3, 0]
        assert result["clocks_of"] == [process]
        assert SENTENCE in result["failed"][1]
    run = musetrace.open(folder / "run")
    assert (run.verdict, run.ranks, run.manifest["world"]) == ("complete", (0, 1, 2, 3), 4)
    for rank in run.ranks:
        assert run.launches(rank)["kind"].to_pylist() == ["entry", "sliding", "head"] * 3
        assert run.step_ids(rank) == [0, 1, 2]
    assert [(report["rank"], report["block"]) for report in run.manifest["reports"]] == [(1, 3)]
    assert run.manifest["device"]["virtual_ranks"] == 2
    # The GPU of process 1 is 5 s ahead, and the host's clock is read by way of a kernel.
    for entry in run.manifest["ranks"][2:]:
        told = entry["alignment"]
        assert told["clock"] == 2
        assert told["method"] in ("peer_ping_pong", "host_anchors")
        assert all(abs(offset + 5_000_000_000) <= told["error_ns"] for offset in told["offsets_ns"])
        assert told["note"] is None


def test_processes_make_the_ranks_of_one_model_too_large_for_the_host(
    outcomes: Outcomes, folder: Path
) -> None:
    results = outcomes["a_run_at_full_width"]
    for result in results:
        assert (result["verdict"], result["tokens"]) == ("complete", None)
    biases, routers, keys = (
        [one for result in results for one in result[name]] for name in ("biases", "routers", "keys")
    )
    assert biases == [biases[0]] * 4
    assert sum(biases[0]) == 16  # of mini's experts the router may choose any
    for own in (routers, keys):
        assert len({tuple(values) for values in own}) == 4
    run = musetrace.open(folder / "full")
    assert (run.verdict, run.ranks) == ("complete", (0, 1, 2, 3))
    draft = draft_of(preset("mini")).within(6)
    plan = gpu_step_plan(preset("mini"), draft, 6)
    assert run.launches(2)["kind"].to_pylist() == [planned.kind for planned in plan] * 2
    assert run.manifest["build"]["draft_target_layers"] == list(draft.target_layer_ids)


def test_processes_that_share_a_model_compare_their_clocks_between_steps(
    outcomes: Outcomes, folder: Path
) -> None:
    for result in outcomes["many_steps"]:
        assert (result["verdict"], result["lost"]) == ("complete", 0)
    run = musetrace.open(folder / "many")
    told = run.manifest["ranks"][2]["alignment"]
    assert len(told["offsets_ns"]) >= 3
    assert told["residual_ns"] is not None
    assert all(abs(offset + 5_000_000_000) <= told["error_ns"] for offset in told["offsets_ns"])
    assert told["note"] is None


def test_a_pass_that_fails_in_one_process_fails_in_all_and_the_next_is_good(outcomes: Outcomes) -> None:
    lost, other = outcomes["a_lost_block"]
    assert lost["failed"][0] == "LaunchTimeoutError"
    assert SENTENCE in lost["failed"][1]
    assert other["failed"] == [
        "DeviceError",
        f"process 0 (ranks 0 to 1) gave the pass up: {SENTENCE}; the devices are usable, run the step again",
    ]
    for result in (lost, other):
        assert result["same"]
        assert result["log"].count("reset") == 1
        behind = [entry[0] for entry in result["log"][result["log"].index("reset") + 1 :]]
        assert [kind for kind in behind if kind in ("entry", "layer", "head")] == ["entry", "layer", "head"]


def test_processes_that_run_different_passes_are_told_so(outcomes: Outcomes) -> None:
    first, second = outcomes["different_passes"]
    assert first["failed"] == [
        "DeviceError",
        "process 1 ran its pass 1 at position 16, this one its pass 1 at 0; give all processes the "
        "same tokens",
    ]
    assert "process 0 ran its pass 1 at position 0, this one its pass 1 at 16" in second["failed"][1]
    assert first["after"] == second["after"] == LOGITS


def test_a_pass_that_all_refuse_leaves_them_usable(outcomes: Outcomes) -> None:
    for result in outcomes["a_full_cache"]:
        assert "the KV cache is full: position 32" in result["failed"][1]
        assert result["after"] == LOGITS


def test_processes_run_whole_steps_and_map_the_drafts_memory_too(outcomes: Outcomes) -> None:
    for process, result in enumerate(outcomes["whole_steps"]):
        # The highest logit is the last one of rank 3; the fake accepts token 1 in every step.
        assert result["tokens"] == [1023, 1, 1, 1]
        assert result["logits"] == LOGITS
        assert result["peers"] == [f"rank {rank:3d} and its draft" for rank in range(4)]
        assert result["loaded"] == [0, 1], "a rank counts among those held"
        log = result["log"]
        assert log.count("connect") == 2
        again = log.index("connect", log.index("draft"))
        launched = next(n for n, entry in enumerate(log) if entry[0] == "draft_context")
        assert log.index("draft") < again < launched
        assert log[-2:] == ["disconnect", "withdraw"]
        assert log.count("replay") == 3, f"process {process}"


def test_whole_steps_of_processes_are_one_run(outcomes: Outcomes, folder: Path) -> None:
    for result in outcomes["recorded_steps"]:
        assert result == {"verdict": "complete", "steps": 3, "tokens": 3}
    run = musetrace.open(folder / "steps")
    assert (run.verdict, run.ranks) == ("complete", (0, 1, 2, 3))
    assert run.manifest["build"]["guesses"] == "chain"
    plan = [planned.kind for planned in gpu_step_plan(MINI, draft_of(MINI))]
    for rank in run.ranks:
        assert run.launches(rank)["kind"].to_pylist() == plan * 3


def test_a_step_that_fails_in_one_process_can_be_run_again(outcomes: Outcomes) -> None:
    lost, other = outcomes["a_lost_block_in_a_step"]
    assert lost["failed"][0] == "LaunchTimeoutError"
    assert SENTENCE in lost["failed"][1]
    assert other["failed"][0] == "DeviceError"
    assert f"process 0 (ranks 0 to 1) gave the pass up: {SENTENCE}" in other["failed"][1]
    for result in (lost, other):
        assert (result["same"], result["kept"], result["resets"], result["again"]) == (True, 0, 1, [1])


def test_processes_that_decode_other_prompts_are_told_so(outcomes: Outcomes) -> None:
    """Also where one prompt is the begin of the other: their passes then differ in what they make."""
    for process, result in enumerate(outcomes["other_prompts"]):
        other = 1 - process
        for name, where in (("others", "pass 1 at position 0"), ("longer", "pass 3 at position 16")):
            assert result[name] == [
                "DeviceError",
                f"process {other} has other tokens than this one behind {where}; give all processes the same "
                "tokens and the same sampling",
            ]
        assert result["after"] == [1023, 1, 1]


def test_processes_with_other_guesses_are_refused(outcomes: Outcomes) -> None:
    expected = (
        "the processes do not agree on guesses: process 0 has 'tree', process 1 'chain'; start all with the "
        "same options"
    )
    for result in outcomes["other_guesses"]:
        assert result["failed"] == ["UsageError", expected]


def test_a_draft_that_one_process_cannot_load_is_heard_of_at_once(outcomes: Outcomes) -> None:
    waiting, failed = outcomes["a_draft_that_one_cannot_load"]
    assert "out of memory" in failed["failed"][1]
    assert waiting["failed"][0] == "DeviceError"
    assert "process 1 of 2 is gone (its connection is closed)" in waiting["failed"][1]


def test_processes_with_other_settings_are_refused_and_the_setting_is_named(outcomes: Outcomes) -> None:
    expected = (
        "the processes do not agree on seed: process 0 has 0, process 1 7; start all with the same options"
    )
    for result in outcomes["other_settings"]:
        assert result["failed"] == ["UsageError", expected]


def test_a_process_that_cannot_start_is_heard_of_at_once(outcomes: Outcomes) -> None:
    waiting, failed = outcomes["weights_that_one_cannot_load"]
    assert "out of memory" in failed["failed"][1]
    assert waiting["failed"][0] == "DeviceError"
    assert "process 1 of 2 is gone (its connection is closed)" in waiting["failed"][1]


def test_a_gpu_that_cannot_go_on_ends_it_for_all(outcomes: Outcomes) -> None:
    for result in outcomes["a_gpu_that_cannot_go_on"]:
        expected = "the GPU of process 1 (ranks 2 to 3) failed and cannot go on; start all processes again"
        assert result["failed"] == ["DeviceError", expected]
        assert "has parted from the others" in result["again"][1]


def test_an_exchange_may_be_ended_behind_others(outcomes: Outcomes) -> None:
    for result in outcomes["an_exchange_behind_another"]:
        assert result == {"told": [[1], [2]], "other": [[10] * 3, [11] * 3]}


def test_a_process_that_does_not_come_is_named(outcomes: Outcomes) -> None:
    waiting, _ = outcomes["a_late_process"]
    expected = "process 1 of 2 is gone (not heard of for 0.3 s); end the others and start all again"
    assert waiting["failed"] == waiting["again"] == ["DeviceError", expected]


@given(left_s=st.floats(-10, 1000))
def test_no_wait_ends_before_its_deadline(left_s: float) -> None:
    """gloo drops what is no whole millisecond: a peer that is only late would seem to be gone."""
    waited_s = whole_milliseconds(left_s) // timedelta(milliseconds=1) / 1000
    assert waited_s >= max(left_s, 0.001) - 1e-9
    assert waited_s <= max(left_s, 0.0) + 0.001 + 1e-9


def test_a_killed_process_is_named_and_nothing_is_launched_without_it(outcomes: Outcomes) -> None:
    left, killed = outcomes["a_killed_process"]
    assert killed is None
    expected = "process 1 of 2 is gone (its connection is closed); end the others and start all again"
    assert left["failed"] == left["again"] == ["DeviceError", expected]
    assert [entry[0] for entry in left["launches"]] == ["entry", "head"]


def test_a_process_that_the_others_never_join_is_told_so(repository: Path) -> None:
    program = (
        "import os; from musetrace.muse.process_group import *; "
        "from musetrace.record.process_place import *; "
        "ProcessGroup(process_place(os.environ), timeout_s=1)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program],
        env=environment(0, free_port()),
        cwd=repository,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert "DeviceError: process 0 has not met all 2 processes within 1 s (" in ended.stderr
