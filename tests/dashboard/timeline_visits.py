"""The block view in the browser: where a time and a row are on the screen, and what the view shows."""

from __future__ import annotations

import time
from typing import Any

from playwright.sync_api import Page
from site_visits import Visit

from musetrace.store import Run

Span = dict[str, Any]
KIND_STRIPS = {"load": 0, "prefetch": 0, "compute": 1, "send": 2, "recv": 2, "sync": 2, "wait": 3}

# Undefined, as is all of it, until the script has made it: the element is there before.
VIEW = "document.querySelector('#timeline')?.timeline?.view"
_PATIENCE_S, _QUIET = 30, 2
_EXACT = f"""() => {{
    const view = {VIEW};
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

    def wait_for(self, holds: str) -> None:
        """Until an expression of the view's state holds; the view may be made anew meanwhile."""
        self.page.wait_for_function(f"() => {{ const app = {VIEW}?.app; return Boolean(app && {holds}); }}")

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
        self.wait_for("!app.stateTimer")
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


def every_span(run: Run) -> list[Span]:
    """Every span of a run with its names; times in ns from the origin, rows as of all blocks."""
    bases = {(rank, row["step"]): row["base_ns"] for rank in run.ranks for row in run.steps(rank).to_pylist()}
    origin = min(bases.values())
    found = []
    for (rank, step), base in bases.items():
        for number, row in enumerate(run.spans(rank, step).to_pylist()):
            job = run.job_table.jobs[row["job"]]
            begin = base - origin + row["begin"]
            place = {"rank": rank, "step": step, "id": number, "row": rank * run.blocks + row["block"]}
            names = {"name": job.name, "op": job.op, "kind": job.kind, "strip": KIND_STRIPS[job.kind]}
            found.append({**row, **place, **names, "begin": begin, "end": begin + row["dur"]})
    return found
