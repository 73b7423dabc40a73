"""Nobody reads a run without the token, and the token stays nowhere where others see it."""

from __future__ import annotations

import re
import socket
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import quote

import pytest
from clients import OWN, opener, urls
from dash import Dash
from flask.testing import FlaskClient

from musetrace.dashboard import DashboardServer, create_app
from musetrace.dashboard.open_runs import OpenRuns
from musetrace.dashboard.security import Access, hosts_of
from musetrace.store import Run

TOKEN = "a-token-of-the-test"


@pytest.fixture(scope="module")
def app(decode: Run) -> Dash:
    """An application that asks for a token."""
    return create_app(OpenRuns([decode]), Access(hosts_of("127.0.0.1", 8050), TOKEN))


@pytest.fixture
def closed(app: Dash) -> FlaskClient:
    return app.server.test_client()


@pytest.mark.parametrize(
    "token", [None, "", "wrong", TOKEN[:-1], TOKEN + "x", "\N{GREEK SMALL LETTER ALPHA}" * 9]
)
def test_nobody_is_let_in_without_the_token(app: Dash, closed: FlaskClient, token: str | None) -> None:
    query = "" if token is None else "?token=" + quote(token)
    for url in urls(app):
        for answer in (closed.get(url + query, headers=OWN), closed.post(url + query, headers=OWN, json={})):
            assert answer.status_code == 401
            assert "Set-Cookie" not in answer.headers
    assert b"musetrace view printed" in closed.get("/", headers=OWN).data


def test_the_token_becomes_a_cookie_and_leaves_the_address(closed: FlaskClient) -> None:
    answer = closed.get(f"/ops?kind=entry&token={TOKEN}&rank=0", headers=OWN)
    assert answer.status_code == 303
    assert answer.headers["Location"] == "/ops?kind=entry&rank=0"
    cookie = answer.headers["Set-Cookie"]
    assert cookie.startswith(f"musetrace-8050={TOKEN};")
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(cookie.split("; "))
    assert closed.get("/_dash-layout", headers=OWN).status_code == 200


@pytest.mark.parametrize("path", ["//evil.example/x", "/\\evil.example", "///evil.example"])
def test_the_token_leads_to_no_other_host(closed: FlaskClient, path: str) -> None:
    answer = closed.get(f"{path}?token={TOKEN}", headers=OWN)
    if answer.status_code == 303:
        assert re.match(r"/[^/\\]", answer.headers["Location"] + "x")


def test_the_page_that_asks_for_the_token_keeps_what_was_asked_for_and_echoes_it_as_text(
    closed: FlaskClient,
) -> None:
    answer = closed.get("/ops", query_string={"kind": '"><script>x</script>', "rank": "0"}, headers=OWN)
    assert "<script>" not in answer.text
    assert 'name="kind" value="&quot;&gt;&lt;script&gt;x&lt;/script&gt;"' in answer.text
    assert 'name="rank" value="0"' in answer.text


def test_no_line_of_the_log_has_the_token(
    decode_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    with caplog.at_level("DEBUG"), DashboardServer([decode_path], port=0) as server:
        opener().open(server.entry_url, timeout=10).close()
        token = server.entry_url.rpartition("=")[2]
    assert len(token) >= 32
    assert token not in caplog.text + "".join(capsys.readouterr())


def status(request: urllib.request.Request) -> int:
    """The status of the answer."""
    try:
        with opener().open(request, timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code


def test_other_machines_are_served_only_when_that_is_asked_for(decode_path: Path) -> None:
    with DashboardServer([decode_path], host="0.0.0.0", port=0, allow_remote=True) as server:
        request = urllib.request.Request(server.url.replace("0.0.0.0", "127.0.0.1"))
        request.add_header("Host", f"{socket.gethostname()}:{server.port}")
        assert status(request) == 401, "the name is answered, but not without the token"
        request.add_header("Host", f"evil.example:{server.port}")
        assert status(request) == 403
