"""Which window the block view shows at first, and for a step and layers; in a page without a server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("playwright")

from chromium import NEEDS_CHROMIUM
from playwright.sync_api import Page
from script_page import call, script_page

pytestmark = list(NEEDS_CHROMIUM)


@pytest.fixture(scope="module")
def page(repository: Path) -> Iterator[Page]:
    with script_page(repository) as empty:
        yield empty


def test_a_step_and_layers_are_a_window_over_all_ranks(page: Page) -> None:
    def launch(rank: int, step: int, layer: int, begin: int) -> dict[str, int]:
        return {
            "rank": rank,
            "step": step,
            "launch": layer + 1,
            "layer": layer,
            "from": begin,
            "to": begin + 90,
        }

    launches = [launch(rank, step, layer, 1_000 * step + 100 * layer + rank)
                for rank in (0, 1) for step in (0, 1) for layer in range(4)]  # fmt: skip
    run = {"launches": launches, "hasLayers": True, "steps": []}
    found = [call(page, "model.windowOf", run, [0, 1], *asked)
             for asked in ((1, "2"), (0, "1-3"), (None, "0"), (1, ""), (1, "9"), (1, "x"))]  # fmt: skip
    assert [window and (window["from"], window["to"]) for window in found] == [
        (1_200, 1_291), (100, 391), (0, 1_091), (1_000, 1_391), None, None,
    ]  # fmt: skip


def test_a_link_without_a_window_opens_on_the_run_or_where_most_is_blank_on_its_first_whole_step(
    page: Page,
) -> None:
    def opening(*steps: tuple[int, int], launches: tuple[int, ...] = ()) -> tuple[int, int]:
        run = {
            "from": 0,
            "to": max([1_000, *(end for _, end in steps)]),
            "steps": [{"step": at, "from": begin, "to": end} for at, (begin, end) in enumerate(steps)],
            "launches": [{"step": step} for step, number in enumerate(launches) for _ in range(number)],
        }
        found = call(page, "model.openingOf", run)
        return found["from"], found["to"]

    assert opening((0, 250), (500, 750)) == (0, 1_000), "half of it is steps"
    assert opening((0, 249), (500, 750)) == (0, 249), "less than half"
    assert opening((0, 300), (200, 300), (250, 300), (900, 910)) == (0, 300), "what overlaps is counted once"
    assert opening((0, 10)) == (0, 1_000), "one step is the run"
    assert opening() == (0, 1_000)
    # The recording began within the first step, and ended within the last.
    assert opening((0, 50), (100, 200), (500, 600), (900, 930), launches=(3, 6, 6, 2)) == (100, 200)
    assert opening((500, 600), (0, 50), launches=(6, 3)) == (500, 600), "of two the larger is whole"
