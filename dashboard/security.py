"""What keeps the page to this machine: who may ask, how much, and what the browser may load.

Binding to a loopback address does not suffice: somebody else's page can have its own name resolve to it and
read the answers (DNS rebinding). So Host and Origin of every request are compared with the bound address.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable

from dash.exceptions import DependencyException
from flask import Flask, Response, abort, request
from werkzeug.exceptions import HTTPException, NotFound

MAX_BODY_BYTES = 256 * 1024

_LOG = logging.getLogger("musetrace.dashboard")
_PLAIN_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
_SENTENCES = {
    403: "This address is not served here: use the one that musetrace view printed.",
    404: "There is no such page.",
    413: "The request is too large.",
}


def hosts_of(host: str, port: int) -> frozenset[str]:
    """The Host headers under which a server bound to ``host`` and ``port`` answers."""
    bound = f"[{host}]" if ":" in host else host
    return frozenset(f"{name}:{port}" for name in {bound, "127.0.0.1", "localhost"})


def content_security_policy(script_hashes: Iterable[str]) -> str:
    """The policy: all from here, scripts also by hash, styles also inline (Plotly and Dash set them)."""
    return "; ".join(
        (
            "default-src 'self'",
            " ".join(("script-src", "'self'", *script_hashes)),
            "style-src 'self' 'unsafe-inline'",
            "img-src 'self' data: blob:",
            "connect-src 'self'",
            "font-src 'self'",
            "form-action 'none'",
            "frame-ancestors 'none'",
            "base-uri 'none'",
            "object-src 'none'",
        )
    )


def guard(server: Flask, hosts: Collection[str], script_hashes: Iterable[str]) -> None:
    """Check every request and set the headers of every answer, those of errors among them.

    Args:
        server: the application.
        hosts: allowed Host headers, ``name:port``.
        script_hashes: of the inline scripts, for the policy.
    """
    server.config["MAX_CONTENT_LENGTH"] = MAX_BODY_BYTES
    headers = _PLAIN_HEADERS | {"Content-Security-Policy": content_security_policy(script_hashes)}
    origins = {f"http://{host}" for host in hosts}

    def check() -> None:
        if request.environ.get("HTTP_HOST", "") not in hosts:
            abort(403)
        if "Origin" in request.headers and request.headers["Origin"] not in origins:
            abort(403)
        if (request.content_length or 0) > MAX_BODY_BYTES:
            abort(413)

    def add_headers(response: Response) -> Response:
        response.headers.update(headers)
        return response

    # Before what Dash does with a request, and around its answer.
    server.before_request_funcs.setdefault(None, []).insert(0, check)
    server.after_request(add_headers)
    server.register_error_handler(HTTPException, _refusal)
    server.register_error_handler(DependencyException, lambda _: _refusal(NotFound()))
    server.register_error_handler(Exception, _failure)


def _refusal(error: HTTPException) -> Response:
    code = error.code or 500
    # What Dash and Werkzeug would add echoes the request.
    return Response(
        _SENTENCES.get(code, "The request cannot be answered.") + "\n", code, mimetype="text/plain"
    )


def _failure(error: Exception) -> Response:
    _LOG.error("a request failed", exc_info=error)
    return Response(
        "The dashboard could not answer this; the terminal shows why.\n", 500, mimetype="text/plain"
    )
