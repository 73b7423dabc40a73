"""A page without a server, in which the block view's pure functions are evaluated."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from chromium import chromium
from playwright.sync_api import Page


@contextmanager
def script_page(repository: Path) -> Iterator[Page]:
    """An empty page with the scripts of the view."""
    assets = repository / "dashboard" / "assets"
    with chromium() as context:
        empty = context.new_page()
        for script in [assets / "page.js", *sorted((assets / "timeline").glob("*.js"))]:
            empty.add_script_tag(path=script)
        yield empty


def call(page: Page, function: str, *arguments: Any) -> Any:
    """What a function below ``musetrace.timeline`` returns."""
    return page.evaluate(f"(all) => musetrace.timeline.{function}(...all)", list(arguments))
