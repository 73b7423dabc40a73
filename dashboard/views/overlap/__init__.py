"""Engines at work beside each other, over the time of a launch, and how fast bytes move."""

from __future__ import annotations

from musetrace.dashboard.views.overlap.view import VIEW

__all__ = ["VIEW"]
