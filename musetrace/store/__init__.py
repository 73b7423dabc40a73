"""Journals and the store: how a run is written, indexed and read."""

from __future__ import annotations

from musetrace.store.run import Run, open_run

__all__ = ["Run", "open_run"]
