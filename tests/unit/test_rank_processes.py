"""Several processes of ``torchrun`` that record one run, on the CPU (``rank_program.py``)."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from musetrace.store import open_run
from tests.conftest import RunCli

PROCESSES = 3
TIMEOUT_S = 120
PLACES = {"LOCAL_RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node")


@dataclass(frozen=True)
class Outcomes:
    """By scenario, what came out of it in each process; what rank 0 said; and the folder of the runs."""

    of: dict[str, list[dict[str, Any]]]
    lines: list[str]
    folder: Path

    def refused(self, scenario: str) -> list[str | None]:
        """The line with which each process was refused."""
        return [outcome.get("refused") for outcome in self.of[scenario]]


@pytest.fixture(scope="module")
def outcomes(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    folder = tmp_path_factory.mktemp("ranks")
    done = subprocess.run(
        [*TORCHRUN, str(PROCESSES), "-m", "tests.unit.rank_program", str(folder)],
        cwd=repository,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    by_scenario: dict[str, list[dict[str, Any]]] = {}
    for line in done.stdout.splitlines():
        result = json.loads(line)
        by_scenario.setdefault(result.pop("scenario"), [{}] * PROCESSES)[result.pop("process")] = result
    said = [line for line in done.stderr.splitlines() if line.startswith("musetrace: ")]
    return Outcomes(by_scenario, said, folder)


def test_processes_record_one_run_and_each_writes_its_ranks(outcomes: Outcomes) -> None:
    assert outcomes.of["one_run"] == [{"verdict": "complete", "ranks": 2, "launches": 12}] * PROCESSES
    # The folder was replaced later on, by a rank of each process; what a run of theirs holds is told here.
    run = open_run(outcomes.folder / "one")
    assert (run.verdict, run.manifest["world"], run.ranks) == ("complete", 3, (0, 1, 2))
    assert run.is_being_recorded is False
    for rank in run.ranks:
        assert run.step_ids(rank) == [10 * rank, 10 * rank + 1]
        assert run.launches(rank).num_rows == 6
    assert len({entry["pid"] for entry in run.manifest["ranks"]}) == PROCESSES


def test_a_folder_that_exists_is_refused_in_every_process(outcomes: Outcomes) -> None:
    line = f"the run {outcomes.folder / 'one'} exists; add --force (force=True) to replace it, or choose "
    first, *others = outcomes.refused("the_folder_exists")
    assert first == f"RecordError: {line}another output"
    assert others == [f"RecordError: rank 0 does not record: {line}another output"] * 2


def test_force_replaces_all_ranks_of_an_earlier_run(outcomes: Outcomes) -> None:
    assert outcomes.of["the_folder_is_replaced"] == [{"verdict": "complete", "ranks": 1, "launches": 6}] * 3
    names = sorted(path.name for path in (outcomes.folder / "one").glob("*.mtj"))
    assert names == ["rank-0000.mtj", "rank-0001.mtj", "rank-0002.mtj"]


def test_clocks_of_processes_are_compared_over_peer_memory_or_by_the_hosts_clock(outcomes: Outcomes) -> None:
    assert {outcome["verdict"] for outcome in outcomes.of["clocks_of_their_own"]} == {"complete"}
    run = open_run(outcomes.folder / "skewed")
    told = [entry["alignment"] for entry in run.manifest["ranks"]]
    assert [one["clock"] for one in told] == [0, 0, 2, 2, 4, 4]
    ways = ["same_clock", "peer_ping_pong", "host_anchors"]
    assert [one["method"] for one in told] == [way for way in ways for _ in range(2)]
    for rank, one in enumerate(told):
        truth_ns = -(rank // 2) * 1_000_000_000
        assert all(abs(offset - truth_ns) <= one["error_ns"] for offset in one["offsets_ns"])
        assert one["offset_ns"] == one["offsets_ns"][0]
    for one in told[2:]:
        assert 0 < one["error_ns"] < 1_000_000_000
        assert len(one["offsets_ns"]) == 2
        assert abs(one["drift_ppb"]) <= one["drift_error_ppb"]
    assert [one["note"] for one in told[3:5]] == [
        None,
        "mapping the flags of another GPU's clock: no peer access",
    ]


def test_clocks_compared_between_steps_show_how_unevenly_they_run(outcomes: Outcomes) -> None:
    told = outcomes.of["clocks_that_run_unevenly"]
    assert {outcome["verdict"] for outcome in told} == {"complete"}
    assert [outcome["compared"] for outcome in told] == [[True] * 4] * PROCESSES
    # Whoever calls it after each step compares now and then, and all at the same steps.
    assert 1 <= told[0]["due"] < 50
    assert len({outcome["due"] for outcome in told}) == 1
    run = open_run(outcomes.folder / "uneven")
    first, second, third = (entry["alignment"] for entry in run.manifest["ranks"])
    assert (first["method"], second["method"], third["method"]) == (
        "same_clock",
        "peer_ping_pong",
        "host_anchors",
    )
    assert len(second["offsets_ns"]) == 2 + 4 + told[0]["due"]
    for number, offset_ns in enumerate(second["offsets_ns"]):
        truth_ns = -1_000_000_000 - 200_000 * (number in (2, 3))
        assert abs(offset_ns - truth_ns) <= second["error_ns"] - second["residual_ns"]
    # Between two comparisons the clock jumped; the line runs through its middle.
    assert second["residual_ns"] >= 50_000
    assert second["error_ns"] > second["residual_ns"]
    assert second["note"] is None
    assert third["residual_ns"] is None
    assert third["note"] == "mapping the flags of another GPU's clock: no peer access"
    # The anchors of start and end are told, whatever lies between them.
    assert [len(entry["anchors"]) for entry in run.manifest["ranks"]] == [2, 2, 2]


def test_kernels_of_processes_go_into_one_run_and_none_waits_for_rank_0s_first_launch(
    outcomes: Outcomes,
) -> None:
    assert outcomes.of["kernels_of_their_own"] == [{"verdict": "complete", "ranks": 1, "launches": 1}] * 3
    run = open_run(outcomes.folder / "kernels")
    assert (run.verdict, run.ranks) == ("complete", (0, 1, 2))
    assert [run.launches(rank)["kind"].to_pylist() for rank in run.ranks] == [["gemm"]] * 3
    assert [run.spans(rank, 0).num_rows for rank in run.ranks] == [16] * 3


def test_processes_of_unequal_ranks_are_refused_and_the_others_record(outcomes: Outcomes) -> None:
    line = "process 1 records 2 ranks and process 0 1 rank; record the same number in every process"
    assert outcomes.refused("unequal_ranks") == [None, f"RecordError: {line}", None]
    assert f"musetrace: rank 1 of 3 has recorded nothing: {line}" in outcomes.lines
    run = open_run(outcomes.folder / "unequal")
    assert (run.verdict, run.ranks, run.losses["missing_ranks"]) == ("incomplete", (0, 2), [1])


def test_a_process_that_cannot_see_rank_0s_folder_is_told_where_it_is(outcomes: Outcomes) -> None:
    line = outcomes.refused("another_folder")[2]
    assert line is not None
    assert f"rank 0 records into {outcomes.folder / 'here'} on " in line
    assert f", which is not {outcomes.folder / 'elsewhere'} on " in line
    nothing = f"musetrace: rank 2 of 3 has recorded nothing: {line.removeprefix('RecordError: ')}"
    assert nothing in outcomes.lines
    assert line.endswith("; name one folder that all processes share")
    assert not (outcomes.folder / "elsewhere").exists()
    assert open_run(outcomes.folder / "here").ranks == (0, 1)


def test_without_a_device_in_rank_0_it_is_missing_and_the_others_record(outcomes: Outcomes) -> None:
    verdicts = [outcome["verdict"] for outcome in outcomes.of["rank_0_without_a_device"]]
    assert verdicts == ["off", "complete", "complete"]
    run = open_run(outcomes.folder / "headless")
    assert (run.verdict, run.ranks, run.losses["missing_ranks"]) == ("incomplete", (1, 2), [0])


def test_without_a_device_in_any_rank_nothing_is_left(outcomes: Outcomes) -> None:
    assert [outcome["verdict"] for outcome in outcomes.of["nobody_has_a_device"]] == ["off"] * 3
    assert not (outcomes.folder / "nothing").exists()


def test_a_run_that_has_ended_has_no_mark(outcomes: Outcomes) -> None:
    assert [path for path in outcomes.folder.rglob(".*")] == []


def test_without_a_device_in_another_rank_it_is_missing_and_said_so(outcomes: Outcomes) -> None:
    line = "musetrace: rank 1 of 3 has recorded nothing: the recorder was closed without a device"
    assert line in outcomes.lines
    assert [outcome["verdict"] for outcome in outcomes.of["rank_1_without_a_device"]] == [
        "incomplete",
        "off",
        "complete",
    ]
    assert open_run(outcomes.folder / "two").losses["missing_ranks"] == [1]


def test_a_process_can_record_alone(outcomes: Outcomes) -> None:
    for process in range(PROCESSES):
        run = open_run(outcomes.folder / f"alone-{process}")
        assert (run.verdict, run.manifest["world"], run.step_ids(0)) == (
            "complete",
            1,
            [10 * process, 10 * process + 1],
        )


def test_rank_0_does_not_wait_for_ever_for_a_process_that_records_on(outcomes: Outcomes) -> None:
    line = "musetrace: rank 1 of 3 has not closed the recording within 1 s; the run is indexed when it is "
    assert f"{line}first opened" in outcomes.lines
    verdicts = [outcome["verdict"] for outcome in outcomes.of["rank_1_goes_on_recording"]]
    assert verdicts == ["incomplete", "complete", "complete"]
    run = open_run(outcomes.folder / "late")
    assert (run.verdict, run.ranks) == ("complete", (0, 1, 2))


def test_a_rank_that_never_comes_is_named_and_the_others_record(outcomes: Outcomes) -> None:
    line = "musetrace: rank 1 of 3 has not come to the recording within 1 s; record in every process, or "
    assert f"{line}alone=True in one" in outcomes.lines
    run = open_run(outcomes.folder / "without-1")
    assert (run.verdict, run.ranks, run.losses["missing_ranks"]) == ("incomplete", (0, 2), [1])


def test_without_rank_0_the_others_are_told_so_in_time(outcomes: Outcomes) -> None:
    line = "RecordError: rank 0 has not opened the recording within 1 s; record in every process, or look "
    assert outcomes.refused("rank_0_never_opens_it")[2] == f"{line}for the one that ended"


KILLED = """
import os, signal, sys, time
import musetrace
from tests.host_device import HostDevice, wait_until
signal.signal(signal.SIGTERM, signal.SIG_IGN)  # torchrun ends the others; rank 0 has something to say first
device = HostDevice(ranks=2, stamps="register")
with musetrace.record() as recorder:
    device.run_steps_unhurried(recorder, recorder.attach(device.source()), steps=2)
    if os.environ["RANK"] == "1":
        wait_until(lambda: recorder._drain.journals[1].steps == 2)
        os.kill(os.getpid(), signal.SIGKILL)
print(recorder.close().verdict)
"""


def test_a_killed_process_leaves_its_ranks_incomplete_and_the_others_complete(
    tmp_path: Path, repository: Path, run_cli: RunCli
) -> None:
    """The whole way: the command line around torchrun around a program."""
    (tmp_path / "program.py").write_text(KILLED, encoding="utf-8")
    words = ("record", "-o", "run", "--", *TORCHRUN, "2", "program.py")
    done = run_cli(*words, env={"PYTHONPATH": str(repository)})
    assert done.returncode == 1, done.stderr
    said = [line for line in done.stderr.splitlines() if line.startswith("musetrace: ")]
    line = "ranks 2, 3 of 4 have ended without closing the recording; what was drained before is kept"
    assert said == [f"musetrace: {line}"]
    first, summary, following = done.stdout.splitlines()
    assert first == "incomplete"
    assert summary.startswith("run is incomplete: 2 steps, 24 launches, ")
    assert following == "next: musetrace report run"
    run = open_run(tmp_path / "run")
    assert [entry["verdict"] for entry in run.manifest["ranks"]] == ["complete"] * 2 + ["incomplete"] * 2
    assert [run.launches(rank).num_rows for rank in run.ranks] == [6] * 4


def test_the_command_goes_around_torchrun_and_not_under_it(run_cli: RunCli) -> None:
    places = PLACES | {"RANK": "1"}
    done = run_cli("record", "-o", "run", "--", "true", env=places)
    assert done.returncode == 2
    assert done.stderr == (
        "musetrace: this is process 1 of 2; record around torchrun instead of under it: musetrace record -o "
        "RUN -- torchrun ...\n"
    )


def test_processes_that_share_no_store_are_told_what_to_do(
    tmp_path: Path, repository: Path, run_cli: RunCli
) -> None:
    places = PLACES | {"RANK": "0"}
    done = run_cli("record", "-o", "run", env=places)
    assert done.returncode == 1
    assert done.stderr == (
        "musetrace: this is process 0 of 2, and they share no store to agree on a recording; start them with "
        "torchrun, or call torch.distributed.init_process_group first\n"
    )
    agent = {"TORCHELASTIC_USE_AGENT_STORE": "True"}
    code = "import musetrace; musetrace.record('run', timeout_s=1)"
    gone = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(repository), "PATH": "", **places, **agent},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert "RecordError: the store of torchrun at localhost:1 does not answer (" in gone.stderr
    assert not (tmp_path / "run").exists()
