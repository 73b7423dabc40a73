"""Answers of the routes that could not do what was asked: JSON with one sentence."""

from __future__ import annotations

import functools
from collections.abc import Callable

from flask import Response, jsonify

from musetrace.dashboard.failure import sentence_of
from musetrace.errors import AnalysisError

Route = Callable[[], Response]


class BadParameterError(Exception):
    """A parameter is missing or not of its kind; the text is a sentence."""


class NotThereError(Exception):
    """What was asked for does not exist; the text is a sentence."""


def refusing(route: Route) -> Route:
    """A route whose failures are told as ``{"error": sentence}``: 400, 404, or 500 for everything else."""

    @functools.wraps(route)
    def answering() -> Response:
        try:
            return route()
        except (BadParameterError, AnalysisError) as error:
            return _refusal(400, str(error))
        except NotThereError as error:
            return _refusal(404, str(error))
        except Exception as error:
            return _refusal(500, sentence_of(error))

    return answering


def _refusal(code: int, sentence: str) -> Response:
    answer: Response = jsonify({"error": sentence})
    answer.status_code = code
    answer.headers["Cache-Control"] = "no-store"
    return answer
