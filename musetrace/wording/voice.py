"""Where words are shown: what a sentence has to know of it."""

from __future__ import annotations

from typing import Protocol


class Voice(Protocol):
    """A terminal is one, and so is a page."""

    @property
    def plus_minus(self) -> str:
        """The sign before an uncertainty."""

    def shown(self, text: object) -> str:
        """A name from a file, made harmless for where it is shown."""
