"""The overview: how long steps take, the launches of a step, and what to fix first."""

from __future__ import annotations

from musetrace.dashboard.views.overview.view import VIEW

__all__ = ["VIEW"]
