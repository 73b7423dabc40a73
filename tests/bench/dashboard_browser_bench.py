"""Prints how quickly the timeline is painted in headless Chromium on this machine; asserts nothing.

    python -m tests.bench.dashboard_browser_bench [--spans 100e6] [--presses 40] [--run FOLDER] [--folder DIR]

A run of eight ranks (``tiled_run``) is shown at 1,440 by 1,000. Keys zoom and pan at every scale, each time
at another place. Times are from the key to two frames after the answer was drawn, in ms; ``at hand`` is to
two frames after the data at hand was drawn under the new window. Server and browser share the cores.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Page

from tests.bench.dashboard_bench import made, serve, show
from tests.bench.tiled_run import LAYERS

sys.path.insert(0, str(Path(__file__).parents[1] / "dashboard"))

from chromium import chromium

SCALES = {"run": None, "step": 1.0, "launch": 1 / LAYERS, "tenth of a launch": 0.1 / LAYERS}
KEYS = ("w", "s", "d", "a")

_APP = "document.querySelector('#timeline').timeline.view.app"
_READY = """() => {
    const root = document.querySelector('#timeline');
    return Boolean(root && root.timeline && root.timeline.view && root.timeline.view.app.painted.isExact);
}"""
_GO = """async (window) => {
    const {app} = document.querySelector('#timeline').timeline.view;
    app.setView({...app.view, ...window});
    const until = performance.now() + 30000;
    while (performance.now() < until && (!app.painted.isExact || app.painted.seq !== app.wantedSeq)) {
        await new Promise((done) => requestAnimationFrame(done));
    }
}"""
_PRESS = """(key) => new Promise((done, fail) => {
    const {app} = document.querySelector('#timeline').timeline.view;
    const frames = (then) => requestAnimationFrame(() => requestAnimationFrame(then));
    const begin = performance.now(), times = {};
    const onPainted = (event) => {
        if (times.atHand === undefined) {
            times.atHand = 0;
            frames(() => (times.atHand = performance.now() - begin));
        }
        if (event.detail.isExact) {
            app.parts.root.removeEventListener('timeline-painted', onPainted);
            const {mode, count} = app.answer;
            frames(() => done({...times, exact: performance.now() - begin, mode, count}));
        }
    };
    app.parts.root.addEventListener('timeline-painted', onPainted);
    setTimeout(() => fail(new Error(app.parts.note.textContent || 'no answer within 30 s')), 30000);
    document.dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true}));
})"""


@contextmanager
def served(run: Path) -> Iterator[str]:
    """A server of its own process; the address that lets a browser in."""
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(run, theirs), daemon=True)
    process.start()
    _, entry_url = ours.recv()
    try:
        yield entry_url
    finally:
        ours.send("end")
        process.join(30)


def first_view(page: Page, entry_url: str) -> None:
    """How long until the timeline is painted after its page was asked for, and what was sent for it."""
    page.goto(entry_url)
    address = page.url.rsplit("/", 1)[0] + "/timeline"
    sizes: list[int] = []
    page.on("response", lambda response: sizes.append(_size(response)))
    for name in ("first timeline", "timeline, reloaded"):
        begin_s = time.perf_counter()
        page.goto(address)
        page.wait_for_function(_READY, timeout=120_000, polling="raf")
        print(f"{name + ', ms':<46} {(time.perf_counter() - begin_s) * 1e3:.0f}", flush=True)
        if name.startswith("first"):
            page.wait_for_load_state("networkidle")
            print(f"{'sent for it, MB':<46} {sum(sizes) / 1e6:.2f}", flush=True)


def _size(response: Any) -> int:
    told = response.headers.get("content-length")
    return int(told) if told else 0


def measure(page: Page, presses: int) -> None:
    """Key to painted, by scale and key."""
    run = page.evaluate(f"() => {{ const {{from, to, steps}} = {_APP}.run; return {{from, to, steps}}; }}")
    page.wait_for_function(f"() => !{_APP}.answer.pending", timeout=600_000)
    steps = run["steps"]
    for scale, share in SCALES.items():
        exact: list[float] = []
        at_hand: list[float] = []
        modes: set[str] = set()
        for number in range(presses):
            page.evaluate(_GO, _window(run, steps[number % len(steps)], share, number / presses))
            found = page.evaluate(_PRESS, KEYS[number % len(KEYS)])
            exact.append(found["exact"])
            at_hand.append(found["atHand"] or found["exact"])
            modes.add(found["mode"])
        show(f"{scale}, key to painted, ms", exact)
        show(f"{scale}, key to painted at hand, ms", at_hand)
        print(f"{'':<46} {', '.join(sorted(modes))}", flush=True)
    print(f"{'DOM nodes':<46} {page.evaluate('() => document.querySelectorAll(`*`).length')}", flush=True)


def _window(run: dict[str, Any], step: dict[str, int], share: float | None, place: float) -> dict[str, float]:
    """A window of a scale somewhere in a step, a bit another each time."""
    if share is None:
        whole = run["to"] - run["from"]
        return {"from": run["from"] + place * 0.01 * whole, "to": run["to"] - place * 0.02 * whole}
    length = (step["to"] - step["from"]) * share * (0.9 + 0.2 * place)
    begin = step["from"] + place * max(step["to"] - step["from"] - length, 0)
    return {"from": begin, "to": begin + length}


def main() -> None:
    """Make a run unless one is given, show it, press keys."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--spans", type=float, default=100e6)
    parser.add_argument("--presses", type=int, default=40)
    parser.add_argument("--run", type=Path, default=None)
    parser.add_argument("--folder", type=Path, default=None)
    args = parser.parse_args()
    root = None if args.run else Path(tempfile.mkdtemp(prefix="musetrace-bench-", dir=args.folder))
    try:
        run = args.run or made(root, args.spans)
        print(f"load of the machine at first {os.getloadavg()[0]:.2f}", flush=True)
        with served(run) as entry_url, chromium(1440, 1000) as context:
            page = context.new_page()
            first_view(page, entry_url)
            measure(page, args.presses)
        print(f"load of the machine at last {os.getloadavg()[0]:.2f}", flush=True)
    finally:
        if root is not None:
            shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()
