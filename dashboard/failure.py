"""What a view shows when it cannot be drawn: one sentence, and for a defect an id that the log has too."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable
from typing import TypeVar

from musetrace.errors import MusetraceError

_LOG = logging.getLogger("musetrace.dashboard")
Answer = TypeVar("Answer")


def sentence_of(error: Exception) -> str:
    """The error in one sentence, without a stack. What is not a MusetraceError is logged under an id."""
    if isinstance(error, MusetraceError):
        return str(error)
    if isinstance(error, OSError):
        reason = error.strerror or type(error).__name__
        return f"The run cannot be read any more: {reason}. Start musetrace view again when it is back."
    fault = secrets.token_hex(4)
    _LOG.error("fault %s", fault, exc_info=error)
    return f"This view could not be drawn. The terminal shows why, under fault {fault}."


def or_sentence(make: Callable[[], Answer], otherwise: Callable[[str], Answer]) -> Answer:
    """``make()``, or ``otherwise(sentence)`` when it fails."""
    try:
        return make()
    except Exception as error:
        return otherwise(sentence_of(error))
