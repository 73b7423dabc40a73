"""The block view in the browser: where a time and a row are on the screen, and what the view shows."""

from __future__ import annotations

import time
from typing import Any

from playwright.sync_api import Page
from site_visits import Visit

VIEW = "document.querySelector('#timeline').timeline.view"
_PATIENCE_S, _QUIET = 30, 2
_EXACT = f"""() => {{
    const view = document.querySelector('#timeline') && {VIEW};
    return Boolean(view) && view.app.painted.isExact && !view.app.frame && !view.app.isRestoring;
}}"""
_PLACE = f"""([row, time, strip]) => {{
    const {{view, geometry, parts}} = {VIEW}.app, plot = geometry.plot, t = musetrace.timeline;
    const box = parts.overlay.getBoundingClientRect();
    const [top, height] = t.drawData.stripBand(strip, {VIEW}.app.strips(), view.rowPx);
    return [box.x + plot.left + t.transform.xOf(view, plot.width, time),
            box.y + plot.top + t.transform.yOf(view, row) + top + height / 2];
}}"""


class Timeline:
    """The block view of a visit."""

    def __init__(self, visit: Visit) -> None:
        self.visit, self.page = visit, visit.page
        self.settle()

    def settle(self) -> None:
        """Until nothing is asked for, and the server's answer to the latest question is painted."""
        quiet, until = 0, time.monotonic() + _PATIENCE_S
        while quiet < _QUIET:
            assert time.monotonic() < until, f"no answer to {[one.url for one in self.visit.pending]}"
            self.page.wait_for_function(_EXACT)
            self.page.wait_for_timeout(25)
            quiet = 0 if self.visit.pending else quiet + 1

    def told(self) -> str:
        """The address, when it holds what is shown."""
        self.settle()
        self.page.wait_for_function(f"() => !{VIEW}.app.stateTimer")
        self.visit.settle()
        return self.page.url

    def app(self, expression: str) -> Any:
        """A value of the view's state, such as ``view.from``."""
        return self.page.evaluate(f"() => {VIEW}.app.{expression}")

    @property
    def window(self) -> tuple[float, float]:
        """The window in ns from the run's origin."""
        return self.app("view.from"), self.app("view.to")

    def place(self, row: int, time: float, strip: int = 1) -> tuple[float, float]:
        """Where a row, time and strip are on the screen."""
        x, y = self.page.evaluate(_PLACE, [row, time, strip])
        return x, y

    def point(self, row: int, time: float, strip: int = 1) -> None:
        """Move the pointer there."""
        self.page.mouse.move(*self.place(row, time, strip))

    def click(self, row: int, time: float, strip: int = 1) -> None:
        """Click there."""
        self.page.mouse.click(*self.place(row, time, strip))
        self.settle()

    def press(self, *keys: str) -> None:
        """Press keys one after the other."""
        for key in keys:
            self.page.keyboard.press(key)
        self.settle()

    def read(self) -> list[int]:
        """The exact numbers of the readout."""
        return values(self.page, ".tl-readout data")

    def picture(self) -> str:
        """The rows as they are painted."""
        picture: str = self.page.evaluate("() => document.querySelector('.tl-base').toDataURL()")
        return picture


def values(page: Page, selector: str) -> list[int]:
    """The numbers of elements ``<data value=...>``."""
    return [int(one.get_attribute("value") or "") for one in page.locator(selector).all()]
