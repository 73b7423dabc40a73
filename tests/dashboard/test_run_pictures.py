"""The pictures that are made of all spans of a run, in a thread of their own, once."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from musetrace.analysis.windows.lane_store import LaneMemory, Timeline
from musetrace.analysis.windows.pyramid import PyramidMemory
from musetrace.dashboard.api.run_pictures import RunPictures
from musetrace.store import Run, open_run


class Live:
    """A run that is still being recorded."""

    is_being_recorded = True

    def __init__(self, run: Run) -> None:
        self.run = run

    def __getattr__(self, name: str) -> Any:
        return getattr(self.run, name)


@pytest.fixture
def path(decode_path: Path, tmp_path: Path) -> Path:
    """A run without pictures."""
    return Path(shutil.copytree(decode_path, tmp_path / "run", ignore=shutil.ignore_patterns("cubes")))


def pictures_of(run: Any) -> RunPictures:
    return RunPictures(run, Timeline.of(run, LaneMemory(1 << 20)), PyramidMemory(1 << 20))


def made(ask: Callable[[], Any]) -> Any:
    """What is there in the end."""
    for _ in range(400):
        found = ask()
        if found is not None:
            return found
        time.sleep(0.05)
    raise AssertionError("it was not made")


def test_both_pictures_are_made_once_and_kept(path: Path) -> None:
    pictures = pictures_of(open_run(path))
    assert pictures.pyramid() is None
    overview, pyramid = made(pictures.overview), pictures.pyramid()
    assert pyramid is not None, "it is made first"
    assert (pictures.overview(), pictures.pyramid()) == (overview, pyramid)
    again = pictures_of(open_run(path))
    assert None not in (again.pyramid(), again.overview())


def test_a_run_that_is_being_recorded_has_an_overview_and_no_pyramid(path: Path) -> None:
    pictures = pictures_of(Live(open_run(path)))
    assert made(pictures.overview) is not None
    assert pictures.pyramid() is None
    assert not (path / "cubes" / "pyramid.json").exists()


def test_a_damaged_pyramid_is_made_anew(path: Path) -> None:
    pictures = pictures_of(open_run(path))
    made(pictures.overview)
    first = pictures.pyramid()
    pictures.forget_pyramid()
    pictures.forget_pyramid()  # somebody else has seen it too
    assert made(pictures.pyramid) is not first
