"""What the browser tests visit: a server for each run, and pages that note all that they say and ask for."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from chromium import chromium, wait_until_drawn
from playwright.sync_api import Dialog, Page, Request

from musetrace.dashboard import DashboardServer
from musetrace.dashboard.ids import field_selector

OP_DATA = "document.querySelector('#op-graph .js-plotly-plot').data"
PLACE = """([graph, x, y]) => {
    const plot = document.querySelector(`#${graph} .js-plotly-plot`);
    plot.scrollIntoView({block: 'center'});
    const box = plot.getBoundingClientRect(), {xaxis, yaxis} = plot._fullLayout;
    return [box.x + xaxis._offset + xaxis.d2p(x), box.y + yaxis._offset + yaxis.d2p(y)];
}"""

# Looks for what a click sets off, 0.16 s and more apart, before it is made again.
_CLICKS, _LOOKS = 3, 10


@dataclass
class Visit:
    """A page, and what it said and asked for meanwhile."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    hosts: set[str] = field(default_factory=set)
    pending: set[Request] = field(default_factory=set)

    def ticks(self, graph: str = "op-graph") -> list[str]:
        """The labels of a graph's rows, as they are shown."""
        return [text.strip() for text in self.page.locator(f"#{graph} .ytick text").all_text_contents()]

    def picked(self, field: str) -> str:
        """The label that a picker shows."""
        return self.page.locator(field_selector(field)).inner_text().strip()

    def choose(self, field: str, label: str) -> None:
        """Choose an entry of a picker as a user does."""
        self.page.locator(field_selector(field)).click()
        self.page.locator(".dash-dropdown-option", has_text=re.compile(f"^{re.escape(label)}$")).click()
        self.settle()

    def hover(self, graph: str, x: float, y: float) -> None:
        """Move to a place in a graph given in the units of its axes."""
        at = self.page.evaluate(PLACE, [graph, x, y])
        self.page.mouse.move(at[0] - 3, at[1])
        self.page.mouse.move(*at)

    def click(self, graph: str, x: float, y: float, taken: Callable[[], bool]) -> str:
        """Click on a place in a graph given in the units of its axes. Returns what it said under the pointer.

        A picture that is drawn anew under the pointer takes no click: then it is clicked again.
        """
        for _ in range(_CLICKS):
            self.hover(graph, x, y)
            label = self.page.locator(f"#{graph} .hovertext")
            label.wait_for()
            said = label.text_content() or ""
            self.page.mouse.down()
            self.page.mouse.up()
            for _ in range(_LOOKS):
                self.settle()
                if taken():
                    return said
        raise AssertionError(f"{graph} took none of {_CLICKS} clicks at ({x}, {y})")

    @property
    def path(self) -> str:
        """Of the page's address."""
        return urlsplit(self.page.url).path

    def watch(self) -> None:
        """Note everything from now on."""
        page = self.page
        page.on("console", lambda message: self.complaints.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("requestfailed", lambda request: self.complaints.append(f"failed: {request.url}"))
        page.on("request", self._asked)
        page.on("requestfinished", lambda request: self.pending.discard(request))
        page.on("dialog", self._dialog)

    def _asked(self, request: Request) -> None:
        self.hosts.add(urlsplit(request.url).netloc)
        self.pending.add(request)

    def settle(self) -> None:
        """Until the callbacks that something set off have answered, and their answers are painted."""
        quiet = 0
        while quiet < 4:
            self.page.wait_for_timeout(40)
            quiet = 0 if self.pending else quiet + 1
        wait_until_drawn(self.page)

    def _dialog(self, dialog: Dialog) -> None:
        self.complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()


class Site:
    """A browser, and a server for each run. Servers are kept: a browser caches scripts by their address."""

    def __init__(self, stack: ExitStack, **options: Any) -> None:
        self.browser = stack.enter_context(chromium(**options))
        self._stack = stack
        self._servers: dict[tuple[Path, ...], DashboardServer] = {}

    def server(self, *runs: Path) -> DashboardServer:
        """The server that shows these runs; the browser has its cookie."""
        if runs not in self._servers:
            server = self._servers[runs] = self._stack.enter_context(DashboardServer(runs, port=0))
            page = self.browser.new_page()
            page.goto(server.entry_url)
            page.close()
        return self._servers[runs]

    @contextmanager
    def visit(self, run: Path, where: str = "", *others: Path) -> Iterator[Visit]:
        """Open a page of a run (and others), as ``ops?kind=entry``. At the end nothing may have left the
        machine or complained.
        """
        url = self.server(run, *others).url
        visit = Visit(self.browser.new_page())
        visit.watch()
        try:
            visit.page.goto(url + where)
            visit.settle()
            yield visit
            assert visit.hosts - {""} == {urlsplit(url).netloc}
            assert visit.complaints == []
        finally:
            visit.page.close()
