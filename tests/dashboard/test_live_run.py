"""A run that changes while a page shows it, in headless Chromium."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from decode_run import build_decode_run

pytest.importorskip("playwright")

from chromium import NEEDS_CHROMIUM
from site_visits import Site, Visit

from musetrace.store.journal_files import SUFFIX

pytestmark = list(NEEDS_CHROMIUM)


def look_again(visit: Visit) -> None:
    """What the page does by itself every few seconds."""
    visit.page.evaluate("() => window.dash_clientside.set_props('poll', {n_intervals: 1 + Math.random()})")
    visit.settle()


def header(visit: Visit) -> str:
    return visit.page.locator(".top").inner_text()


def test_a_run_that_grows_is_followed_and_one_that_vanishes_is_told(site: Site, tmp_path: Path) -> None:
    run = build_decode_run(tmp_path / "run", steps=1, end=False)
    longer = build_decode_run(tmp_path / "longer", steps=3)
    with site.visit(run, "overview") as visit:
        assert "2 ranks \N{MULTIPLICATION SIGN} 4 blocks, 1 step" in header(visit)
        assert "incomplete" in header(visit)
        for journal in longer.glob(f"*{SUFFIX}"):
            shutil.copy(journal, run / journal.name)
        look_again(visit)
        assert "4 blocks, 3 steps" in header(visit)
        assert "complete" in header(visit)
        shutil.move(run, tmp_path / "away")
        look_again(visit)
        assert "run is no longer where it was: what is shown was read before" in header(visit)
        shutil.move(tmp_path / "away", run)
        look_again(visit)
        assert "no longer" not in header(visit)


@pytest.mark.parametrize(
    "view", ["overview", "ops", "timeline", "idle", "overlap", "stops", "path", "launches"]
)
def test_a_run_whose_recording_was_killed_is_shown_with_its_verdict(
    site: Site, tmp_path: Path, view: str
) -> None:
    run = build_decode_run(tmp_path / "killed", steps=2, end=False)
    with site.visit(run, view) as visit:
        assert "incomplete" in header(visit)
        assert visit.page.locator("#view").inner_text().strip()
