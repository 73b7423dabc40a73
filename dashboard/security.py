"""What keeps the page to those it is for: who may ask, how much, and what the browser may load.

Binding to a loopback address does not suffice: somebody else's page can have its own name resolve to it and
read the answers (DNS rebinding). So Host and Origin of every request are compared with the bound address. And
other users of the machine reach that address too: so the first visit brings a token, which then is a cookie.
"""

from __future__ import annotations

import hmac
import html
import logging
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from urllib.parse import urlencode

from dash.exceptions import DependencyException
from flask import Flask, Response, abort, redirect, request
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
TOKEN_FIELD = "token"
_COOKIE = "musetrace"
_SENTENCES = {
    403: "This address is not served here: use the one that musetrace view printed.",
    404: "There is no such page.",
    413: "The request is too large.",
}


def hosts_of(host: str, port: int, more: Iterable[str] = ()) -> frozenset[str]:
    """The Host headers under which a server bound to ``host`` answers; ``more`` are other names of it."""
    bound = f"[{host}]" if ":" in host else host
    return frozenset(f"{name}:{port}" for name in {bound, "127.0.0.1", "localhost", *more})


@dataclass(frozen=True)
class Access:
    """Who may ask: with one of these Host headers (``name:port``), and with the token where there is one."""

    hosts: Collection[str]
    token: str = ""

    @property
    def cookie(self) -> str:
        """The cookie's name. Browsers keep cookies by host alone, and two dashboards differ in the port."""
        ports = sorted({host.rpartition(":")[2] for host in self.hosts})
        return "-".join((_COOKIE, *ports))

    def opens(self, given: str | None) -> bool:
        """Whether somebody with this token may ask. Compared as bytes: a text may be of any characters."""
        return not self.token or hmac.compare_digest((given or "").encode(), self.token.encode())


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
            "form-action 'self'",
            "frame-ancestors 'none'",
            "base-uri 'none'",
            "object-src 'none'",
        )
    )


def guard(server: Flask, access: Access, script_hashes: Iterable[str]) -> None:
    """Check every request and set the headers of every answer, those of errors among them.

    Args:
        server: the application.
        access: who may ask.
        script_hashes: of the inline scripts, for the policy.
    """
    server.config["MAX_CONTENT_LENGTH"] = MAX_BODY_BYTES
    headers = _PLAIN_HEADERS | {"Content-Security-Policy": content_security_policy(script_hashes)}
    origins = {f"http://{host}" for host in access.hosts}

    def check() -> Response | None:
        if request.environ.get("HTTP_HOST", "") not in access.hosts:
            abort(403)
        if "Origin" in request.headers and request.headers["Origin"] not in origins:
            abort(403)
        if (request.content_length or 0) > MAX_BODY_BYTES:
            abort(413)
        if access.opens(request.cookies.get(access.cookie)):
            return None
        return _let_in(access)

    def add_headers(response: Response) -> Response:
        response.headers.update(headers)
        return response

    # Before what Dash does with a request, and around its answer.
    server.before_request_funcs.setdefault(None, []).insert(0, check)
    server.after_request(add_headers)
    server.register_error_handler(HTTPException, _refusal)
    server.register_error_handler(DependencyException, lambda _: _refusal(NotFound()))
    server.register_error_handler(Exception, _failure)


def _let_in(access: Access) -> Response:
    """Exchange a token in the address for a cookie, so that it does not stay there; or ask for it."""
    others = [(name, value) for name, value in request.args.items(multi=True) if name != TOKEN_FIELD]
    if request.method != "GET" or not access.opens(request.args.get(TOKEN_FIELD)):
        return _ask_for_token(others)
    # A path that begins with two slashes would be another host.
    path = "/" + request.path.lstrip("/")
    answer = redirect(f"{path}?{urlencode(others)}" if others else path, 303)
    answer.set_cookie(access.cookie, access.token, httponly=True, samesite="Strict", path="/")
    return answer  # type: ignore[return-value]


def _ask_for_token(fields: Iterable[tuple[str, str]]) -> Response:
    """A page that takes the token and goes on to the view that was asked for."""
    hidden = "".join(
        f'<input type="hidden" name="{html.escape(name)}" value="{html.escape(value)}">'
        for name, value in fields
    )
    page = (
        '<!DOCTYPE html><html lang="en"><meta name="color-scheme" content="light dark">'
        "<title>musetrace</title><h1>musetrace</h1><p>This page needs the token that musetrace view printed: "
        f'open the address it printed, or give the token here.</p><form method="get">{hidden}<label>token '
        f'<input name="{TOKEN_FIELD}" autofocus autocomplete="off"></label> <button>open</button></form>'
        "</html>\n"
    )
    return Response(page, 401, mimetype="text/html")


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
