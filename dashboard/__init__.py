"""The dashboard: a run in the browser. Needs ``musetrace[dashboard]``; ``musetrace view`` starts it."""

from __future__ import annotations

from musetrace.dashboard.app import create_app
from musetrace.dashboard.server import DashboardServer, serve

__all__ = ["DashboardServer", "create_app", "serve"]
