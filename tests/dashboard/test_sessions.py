"""K10: many sessions at once, one of them slow; what is kept for them is bounded."""

from __future__ import annotations

import json
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from clients import opener

from musetrace.dashboard import DashboardServer
from musetrace.dashboard.open_runs import OpenRuns, RunRef
from musetrace.store import Run

SESSIONS = 50


def test_fifty_sessions_are_answered_beside_one_that_sends_half_a_request(
    decode_path: Path, tiny_path: Path
) -> None:
    with (
        DashboardServer([decode_path, tiny_path], port=0) as server,
        socket.create_connection(("127.0.0.1", server.port)) as slow,
    ):
        slow.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1")

        def session(number: int) -> tuple[int, int]:
            browser, run = opener(), number % 2
            browser.open(server.entry_url, timeout=30).close()
            with browser.open(f"{server.url}api/run?run={run}", timeout=30) as answer:
                return run, len(json.load(answer)["ranks"])

        with ThreadPoolExecutor(SESSIONS) as pool:
            answers = list(pool.map(session, range(SESSIONS)))
    # Each session gets the run that it asked for: two ranks, or one.
    assert answers == [(number % 2, 2 - number % 2) for number in range(SESSIONS)]


def test_what_is_kept_for_sessions_is_bounded_and_the_oldest_goes_first(decode: Run) -> None:
    runs, made = OpenRuns([decode]), []

    def make(key: int) -> None:
        runs.kept(RunRef(0), key, lambda _: made.append(key))

    for key in range(1000):
        make(key)
    before = len(made)
    make(999)
    assert len(made) == before, "the newest is kept"
    make(0)
    assert len(made) == before + 1, "the oldest is not"
