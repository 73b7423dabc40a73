"""Processes meet in front of a pass, and hear behind it how it ended."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from musetrace.errors import DeviceError
from musetrace.muse.joint_passes import JointPasses
from musetrace.muse.launch_plan import PlannedLaunch


class Watched:
    """Device and passes in one; what was asked of them, in order."""

    plan = (PlannedLaunch("entry", 0, 0, -1, "entry"), PlannedLaunch("head", 1, 1, 1, "head"))

    def __init__(self, **failures: DeviceError) -> None:
        self.log: list[Any] = []
        self._failures = failures

    def _do(self, name: str) -> None:
        self.log.append(name)
        if name in self._failures:
            raise self._failures[name]

    def meet(self) -> None:
        self._do("meet")

    def run(self, position: int, *_: object) -> None:
        self._do("run")

    def end_pass(self, position: int, failure: DeviceError | None, has_logits: bool) -> None:
        self.log.append((position, failure, has_logits))


def test_nothing_is_launched_before_all_processes_are_there() -> None:
    """A wait inside a launch has a second; a host that drains stamps or fills a cache may take longer."""
    watched = Watched()
    JointPasses(watched, watched).run(48, None, None)  # type: ignore[arg-type]
    assert watched.log == ["meet", "run", (48, None, True)]


def test_nothing_is_launched_without_a_process_that_is_gone() -> None:
    watched = Watched(meet=DeviceError("process 1 of 2 is gone"))
    with pytest.raises(DeviceError, match="process 1 of 2 is gone"):
        JointPasses(watched, watched).run(0, None, None)  # type: ignore[arg-type]
    assert watched.log == ["meet"]


def test_what_a_pass_raises_is_told_to_the_others() -> None:
    failure = DeviceError("the KV cache is full")
    watched = Watched(run=failure)
    only_entry = SimpleNamespace(plan=Watched.plan[:1], run=watched.run)
    JointPasses(watched, only_entry).run(16, None, None)  # type: ignore[arg-type]
    assert watched.log == ["meet", "run", (16, failure, False)]
