"""`musetrace record`: the built-in step, a program of the user's, and what it says in the end."""

from __future__ import annotations

import io
import json
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from musetrace.cli import main
from musetrace.cli.progress import ProgressBar
from musetrace.errors import DeviceError
from musetrace.muse.decode_options import DecodeOptions
from musetrace.record.recorder import Recorder
from musetrace.store import open_run
from tests.conftest import RunCli
from tests.host_device import HostDevice

PROGRAM = """
import sys
import musetrace
from tests.host_device import HostDevice
with musetrace.record() as recorder:
    device = HostDevice(stamps=recorder.stamps)
    device.run_steps_unhurried(recorder, recorder.attach(device.source()), steps=2)
print("the program's own output")
sys.exit(int(sys.argv[1]) if sys.argv[1:] else 0)
"""


@dataclass(frozen=True)
class FakeOptions:
    """What the built-in step is told, with the defaults that the manual has."""

    device: str
    model: str
    steps: int
    tp: int | None
    blocks: int | None
    seed: int
    layers: int | None = None
    context: int | None = None
    stop4: str | None = None
    launches: str | None = None
    guesses: str | None = None
    weights: str | None = None
    prompt: str | None = None
    temperature: float | None = None
    batch: int = 1


@pytest.fixture
def decode(monkeypatch: pytest.MonkeyPatch) -> list[FakeOptions]:
    """A built-in step without torch; the list gets the options that it was told."""
    told: list[FakeOptions] = []

    def record_decode(
        recorder: Recorder, options: DecodeOptions, progress: Callable[[int, int], None]
    ) -> SimpleNamespace:
        told.append(FakeOptions(**asdict(options)))
        if options.model == "broken":
            raise DeviceError("the device broke; mend it")
        device = HostDevice(ranks=options.tp or 2, blocks=options.blocks or 2, stamps=recorder.stamps)
        device.run_steps_unhurried(recorder, recorder.attach(device.source()), steps=options.steps)
        progress(options.steps, options.steps)
        if options.weights is None:
            return SimpleNamespace(tokens=None, prompt=None, text=None)
        return SimpleNamespace(tokens=7, prompt=options.prompt or "Once", text="upon\na time")

    module = ModuleType("musetrace.muse.decode")
    module.__dict__.update(record_decode=record_decode)
    monkeypatch.setitem(sys.modules, "musetrace.muse.decode", module)
    return told


def test_the_built_in_step_is_recorded_and_the_next_command_is_named(
    tmp_path: Path, decode: list[FakeOptions], capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "my run"
    assert main(["record", "-o", str(run), "--steps", "3", "--tp", "4"]) == 0
    assert decode == [FakeOptions("auto", "mini", 3, 4, None, 0)]
    out, err = capsys.readouterr()
    assert err == ""
    counts, following = out.splitlines()
    assert counts.startswith(
        f"{run} is complete: 3 steps, 36 launches, 576 spans on 4 ranks; losses: unknown_job"
    )
    assert following == f"next: musetrace report {shlex.quote(str(run))}"
    assert open_run(run).verdict == "complete"


def test_defaults_are_those_of_the_manual(tmp_path: Path, decode: list[FakeOptions]) -> None:
    assert main(["record", "-o", str(tmp_path / "run")]) == 0
    assert decode == [FakeOptions("auto", "mini", 20, None, None, 0)]
    assert open_run(tmp_path / "run").manifest["stamps"] == "register"


def test_what_the_gpu_is_told(tmp_path: Path, decode: list[FakeOptions]) -> None:
    words = "--device cuda --model slice --tp 8 --layers 3 --context 100 --stop4 gather --graph"
    assert main(["record", "-o", str(tmp_path / "run"), "--steps", "1", *words.split()]) == 0
    assert decode == [FakeOptions("cuda", "slice", 1, 8, None, 0, 3, 100, "gather", "graph")]


def test_what_the_cpu_is_told(tmp_path: Path, decode: list[FakeOptions]) -> None:
    words = ["--device", "cpu", "--guesses", "chain", "--temperature", "0.7", "--batch", "3"]
    assert main(["record", "-o", str(tmp_path / "run"), *words]) == 0
    told = {"guesses": "chain", "temperature": 0.7, "batch": 3}
    assert decode == [FakeOptions("cpu", "mini", 20, None, None, 0, **told)]  # type: ignore[arg-type]


def test_what_was_decoded_is_said(
    tmp_path: Path, decode: list[FakeOptions], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--device", "cpu", "--steps", "2", "--weights", "mini-weights", "--prompt", "It was"]
    assert main(["record", "-o", str(tmp_path / "run"), *words]) == 0
    assert (decode[0].weights, decode[0].prompt) == ("mini-weights", "It was")
    *text, counts, _ = capsys.readouterr().out.splitlines()
    assert text == ["It was | upon", "a time"]
    assert "is complete: 2 steps, 7 tokens (3.50 a step), " in counts
    assert main(["record", "-o", str(tmp_path / "two"), *words, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["decoded"] == {"tokens": 7, "prompt": "It was", "text": "upon\na time"}


def test_json_is_one_document(
    tmp_path: Path, decode: list[FakeOptions], capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    words = ["record", "-o", str(run), "--steps", "2", "--stamps", "store", "--device", "cpu", "--json"]
    assert main(words) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["run"] == str(run)
    assert (document["verdict"], document["state"], document["steps"]) == ("complete", "closed", 2)
    assert (document["launches"], document["ranks"], document["losses"]["lost_launches"]) == (12, 2, 0)
    assert document["next"] == ["musetrace", "report", str(run)]
    assert decode[0].device == "cpu"


def test_the_output_is_checked_before_anything_is_started(
    tmp_path: Path, decode: list[FakeOptions], capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "work").mkdir()
    marker = tmp_path / "started"
    command = ["--", sys.executable, "-c", f"open({str(marker)!r}, 'w')"]
    for more in ([], ["--force"], command):
        assert main(["record", "-o", str(tmp_path / "work"), *more]) == 1
        assert capsys.readouterr().err.count("\n") == 1
    assert decode == []
    assert not marker.exists()


def test_force_replaces_a_run(tmp_path: Path, decode: list[FakeOptions]) -> None:
    run = str(tmp_path / "run")
    assert main(["record", "-o", run, "--steps", "2"]) == 0
    assert main(["record", "-o", run, "--steps", "5"]) == 1
    assert main(["record", "-o", run, "--steps", "5", "--force"]) == 0
    assert open_run(run).step_ids(0) == [0, 1, 2, 3, 4]


def test_a_device_that_fails_is_one_line_and_leaves_no_empty_folder(
    tmp_path: Path, decode: list[FakeOptions], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["record", "-o", str(tmp_path / "run"), "--model", "broken"]) == 1
    assert capsys.readouterr().err == "musetrace: the device broke; mend it\n"
    assert not (tmp_path / "run").exists()


def test_without_torch_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    for name in [name for name in sys.modules if name.startswith("musetrace.muse")]:
        monkeypatch.delitem(sys.modules, name)
    assert main(["record", "-o", str(tmp_path / "run")]) == 1
    err = capsys.readouterr().err
    assert err == "musetrace: the built-in step needs torch: pip install 'musetrace[record]'\n"
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["-o", "r", "--stamps", "both"],
        ["-o", "r", "--device", "tpu"],
        ["-o", "r", "--steps", "many"],
        ["r"],
        ["-o", "r", "r2"],
        ["-o", "r", "--"],
        ["-o", "r", "--steps", "3", "--", "true"],
        ["-o", "r", "--graph", "--", "true"],
        ["-o", "r", "--stop4", "half"],
    ],
)
def test_a_command_line_that_makes_no_sense_is_exit_code_2(
    tmp_path: Path, words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["record", *words]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def program(tmp_path: Path, repository: Path) -> dict[str, Any]:
    """A program of a user's, and the environment that it needs."""
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")
    return {"env": {"PYTHONPATH": str(repository)}}


def test_a_program_is_recorded_and_its_exit_code_and_output_are_kept(
    tmp_path: Path, run_cli: RunCli, program: dict[str, Any]
) -> None:
    words = ("record", "-o", "run", "--stamps", "store", "--", sys.executable, "program.py", "5")
    done = run_cli(*words, **program)
    assert done.returncode == 5
    own, counts, following = done.stdout.splitlines()
    assert own == "the program's own output"
    assert "run is complete: 2 steps, 6 launches" in counts
    assert following == "next: musetrace report run"
    assert open_run(tmp_path / "run").manifest["stamps"] == "store"
    again = run_cli(*words, **program)
    assert (again.returncode, again.stdout) == (1, "")
    forced = run_cli("record", "--force", "-o", "run", "--", sys.executable, "program.py", **program)
    assert forced.returncode == 0
    assert open_run(tmp_path / "run").manifest["stamps"] == "register"


def test_a_program_that_records_nothing_or_cannot_start_is_told(tmp_path: Path, run_cli: RunCli) -> None:
    done = run_cli("record", "-o", "run", "--", sys.executable, "-c", "raise SystemExit(3)")
    assert done.returncode == 3
    assert "recorded nothing: does it call musetrace.record()?" in done.stderr
    gone = run_cli("record", "-o", "run", "--", "no-such-program-anywhere")
    assert gone.returncode == 1
    assert "cannot start no-such-program-anywhere: No such file" in gone.stderr
    killed = run_cli("record", "-o", "run", "--", "sh", "-c", "kill -9 $$")
    assert killed.returncode == 128 + 9


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_signals_reach_the_program(tmp_path: Path, number: signal.Signals) -> None:
    code = f"import signal, sys, time; signal.signal({int(number)}, lambda *_: sys.exit(42))\n"
    code += "open('ready', 'w').close(); time.sleep(30)"
    process = subprocess.Popen(
        [sys.executable, "-m", "musetrace", "record", "-o", "run", "--", sys.executable, "-c", code],
        cwd=tmp_path,
        stderr=subprocess.DEVNULL,
        # Without a terminal, nobody but the recorder can pass a Ctrl-C on.
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + 30
        while not (tmp_path / "ready").exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(number)
        assert process.wait(timeout=20) == 42
    finally:
        process.kill()
        process.wait()


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_the_progress_bar_is_for_terminals_and_wipes_itself() -> None:
    terminal, pipe = Terminal(), io.StringIO()
    for stream in (terminal, pipe):
        with ProgressBar(stream, "recording", "steps") as bar:
            bar.show(0, 4)
            bar.show(4, 4)
    assert pipe.getvalue() == ""
    first, last, wiped, end = terminal.getvalue().split("\r")[1:]
    assert first == "recording [" + "." * 30 + "] 0/4 steps"
    assert last == "recording [" + "#" * 30 + "] 4/4 steps"
    assert wiped == " " * len(last)
    assert end == ""
