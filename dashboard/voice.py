"""The page as a place for words (``musetrace.wording``): a name is text there, whatever it holds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PageVoice:
    """Names as they are; what cannot be seen, or turns the direction of writing, is replaced."""

    plus_minus: str = "\N{PLUS-MINUS SIGN}"

    def shown(self, text: object) -> str:
        """A name from a file."""
        return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in str(text))


VOICE = PageVoice()
