"""What the page's scripts and its links ask for: answers that are no components."""

from __future__ import annotations

from flask import Blueprint

from musetrace.dashboard.api import tables, windows
from musetrace.dashboard.open_runs import OpenRuns


def blueprints(runs: OpenRuns) -> list[Blueprint]:
    """All routes below ``/api``."""
    return [tables.blueprint(runs), windows.blueprint(runs)]
