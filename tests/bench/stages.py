"""Commands run one after the other, each within its own time, and what became of each."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

# Less is not worth a start.
_LEAST_S = 5.0
_LAST_WORDS = 400
# As a shell says it.
_NOT_STARTED = 127
OK, FAILED, TIMED_OUT, SKIPPED = "ok", "failed", "out of time", "skipped"


@dataclass(frozen=True)
class Stage:
    """A command.

    Attributes:
        limit_s: then it is ended, with all that it started.
        needs: names of stages without which it makes no sense.
        to: file in the results' folder that gets its standard output; None: the log.
        good: exit codes of a command that did its work.
        folder: where it is started.
    """

    name: str
    command: Sequence[str]
    limit_s: float
    needs: tuple[str, ...] = ()
    to: str | None = None
    good: tuple[int, ...] = (0,)
    folder: Path | None = None


@dataclass(frozen=True)
class Outcome:
    """What became of a stage; ``said`` are its last words, empty when all is well."""

    name: str
    state: str
    seconds: float
    said: str = ""


@dataclass
class Stages:
    """Runs stages until a deadline, and goes on when one fails.

    Args:
        folder: for logs and outputs; it exists.
        seconds: for all of them.
        environment: of the commands.
    """

    folder: Path
    seconds: float
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    outcomes: list[Outcome] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._end = time.monotonic() + self.seconds

    def run(self, stage: Stage) -> bool:
        """Run one; whether it did its work."""
        outcome = self._outcome(stage)
        self.outcomes.append(outcome)
        print(f"{outcome.name}: {outcome.state}, {outcome.seconds:.1f} s {outcome.said}".rstrip(), flush=True)
        return outcome.state == OK

    def markdown(self) -> str:
        """A table of all outcomes."""
        rows = [
            f"| {one.name} | {one.state} | {one.seconds:.1f} | {one.said.replace('|', '/')} |"
            for one in self.outcomes
        ]
        return "\n".join(["| stage | outcome | s | last words |", "|---|---|---|---|", *rows])

    def to_json(self) -> list[dict[str, Any]]:
        """The same as plain JSON types."""
        return [asdict(one) for one in self.outcomes]

    def _outcome(self, stage: Stage) -> Outcome:
        states = {one.name: one.state for one in self.outcomes}
        missing = [name for name in stage.needs if states.get(name) != OK]
        left_s = self._end - time.monotonic()
        if missing:
            return Outcome(stage.name, SKIPPED, 0.0, f"without {', '.join(missing)}")
        if left_s < _LEAST_S:
            return Outcome(stage.name, SKIPPED, 0.0, "no time is left")
        begin = time.monotonic()
        code = self._code(stage, min(stage.limit_s, left_s))
        seconds = time.monotonic() - begin
        if code is None:
            return Outcome(stage.name, TIMED_OUT, seconds, self._said(stage))
        if code in stage.good:
            return Outcome(stage.name, OK, seconds)
        return Outcome(stage.name, FAILED, seconds, f"exit code {code}: {self._said(stage)}")

    def _log(self, stage: Stage) -> Path:
        return self.folder / f"{stage.name.replace(' ', '-')}.log"

    def _code(self, stage: Stage, limit_s: float) -> int | None:
        """The exit code; None for a command that was ended."""
        with ExitStack() as files:
            log = files.enter_context(self._log(stage).open("wb"))
            out = log if stage.to is None else files.enter_context((self.folder / stage.to).open("wb"))
            try:
                process = subprocess.Popen(
                    list(stage.command),
                    stdout=out,
                    stderr=log,
                    stdin=subprocess.DEVNULL,
                    env=dict(self.environment),
                    cwd=stage.folder,
                    start_new_session=True,
                )
            except OSError as error:
                log.write(str(error).encode())
                return _NOT_STARTED
            try:
                return process.wait(limit_s)
            except subprocess.TimeoutExpired:
                return None
            finally:
                _end_all(process)

    def _said(self, stage: Stage) -> str:
        text = self._log(stage).read_text(encoding="utf-8", errors="replace").strip()
        return " ".join(text[-_LAST_WORDS:].split())


def _end_all(process: subprocess.Popen[bytes]) -> None:
    """The command with all of its session: processes of torchrun outlive it when it is killed alone."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    process.wait()
