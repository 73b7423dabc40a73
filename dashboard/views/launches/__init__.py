"""How launches follow each other: one step as a strip, the edges of launches, steps and their parts."""

from __future__ import annotations

from musetrace.dashboard.views.launches.view import VIEW

__all__ = ["VIEW"]
