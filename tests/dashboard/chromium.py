"""Headless Chromium through Playwright: no profile of anybody, and nothing asked of any other machine."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Page, sync_playwright

ARGUMENTS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def chromium_path() -> str | None:
    """The browser of the environment (CHROMIUM), or the system's; None when there is none."""
    path = os.environ.get("CHROMIUM", "/usr/bin/chromium")
    return path if Path(path).is_file() else shutil.which("chromium")


# The marks of a module whose tests need the browser.
NEEDS_CHROMIUM = (
    pytest.mark.browser,
    pytest.mark.skipif(chromium_path() is None, reason="no Chromium: install it, or name it in CHROMIUM"),
)


@contextmanager
def chromium(width: int = 1440, height: int = 1000, scheme: str = "light") -> Iterator[BrowserContext]:
    """A new browser with an empty user folder."""
    with tempfile.TemporaryDirectory(prefix="chromium-") as folder, sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(
            folder,
            executable_path=chromium_path(),
            args=list(ARGUMENTS),
            viewport={"width": width, "height": height},
            color_scheme=scheme,
            device_scale_factor=1,
        )
        try:
            yield context
        finally:
            context.close()


def wait_until_drawn(page: Page) -> None:
    """Until there is a view and nothing of it waits for a callback; its graphs show their figures."""
    page.wait_for_function(
        """() => {
            const view = document.querySelector('#view');
            if (!view || !view.children.length || view.querySelector('[data-dash-is-loading]')) return false;
            return [...view.querySelectorAll('.graph')].every((graph) => {
                const plot = graph.querySelector('.js-plotly-plot');
                if (!plot || !plot._fullLayout || !plot.data) return false;
                return plot.data.concat(plot.layout.annotations || []).length > 0;
            });
        }""",
        timeout=30_000,
    )
    # Two frames: what was set is painted.
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
