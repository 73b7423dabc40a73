"""The idle view: what blocks that do not work wait for, where, and the worst examples of each cause."""

from __future__ import annotations

from musetrace.dashboard.views.idle.view import VIEW

__all__ = ["VIEW"]
