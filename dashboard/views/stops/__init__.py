"""Stops and skew: how far apart blocks and ranks arrive at each stop, who is last, and what that costs."""

from __future__ import annotations

from musetrace.dashboard.views.stops.view import VIEW

__all__ = ["VIEW"]
