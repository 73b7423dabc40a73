"""No page has more than 3,000 nodes, whatever the run: a browser pays for each of them on every change."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("playwright")

from chromium import NEEDS_CHROMIUM
from decode_run import build_decode_run
from site_visits import Site

from musetrace.dashboard.views import VIEWS
from musetrace.figures.stop_rows import MOST_RANKS

pytestmark = list(NEEDS_CHROMIUM)

MOST_NODES = 3_000
# With these fields there is most to show; "all" as by default where none are named.
FULLEST = {"idle": "?kind=all", "compare": "?numbers=ops"}


@pytest.fixture(scope="module")
def wide_paths(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two runs of as many ranks as are ever drawn beside each other."""
    folder = tmp_path_factory.mktemp("wide")
    meta = {"clock": {"name": "globaltimer", "tick_ns": 1}}
    a, b = (
        build_decode_run(folder / name, ranks=MOST_RANKS, blocks=3, steps=2, meta=meta) for name in ("a", "b")
    )
    return a, b


@pytest.mark.parametrize("view", [view.name for view in VIEWS])
def test_a_page_has_few_nodes(site: Site, wide_paths: tuple[Path, Path], view: str) -> None:
    first, other = wide_paths
    with site.visit(first, view + FULLEST.get(view, ""), other) as visit:
        visit.page.wait_for_function("() => document.querySelectorAll('*').length > 250")
        nodes = visit.page.evaluate("document.querySelectorAll('*').length")
        assert visit.page.locator(".sentence").count() == 0, "there is something to show"
        assert nodes <= MOST_NODES
