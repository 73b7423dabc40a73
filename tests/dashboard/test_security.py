"""The page answers to this machine alone, says nothing of the machine's files, and survives any request."""

from __future__ import annotations

import gzip
import json
import re
import socket
from pathlib import Path
from typing import Any

import pytest
from clients import OWN, opener, urls
from dash import Dash
from flask.testing import FlaskClient

from musetrace.dashboard import DashboardServer, create_app
from musetrace.dashboard.ids import field
from musetrace.dashboard.open_runs import OpenRuns
from musetrace.dashboard.security import MAX_BODY_BYTES, content_security_policy, hosts_of
from musetrace.errors import MusetraceError, UsageError
from musetrace.store import Run, open_run

UPDATE = "/_dash-update-component"
BAD_HOSTS = (
    "evil.example",
    "evil.example:8050",
    "127.0.0.1",
    "127.0.0.1:8051",
    "127.0.0.1:80",
    "127.0.0.1:8050.evil.example",
    "127.0.0.1.evil.example:8050",
    "evil@127.0.0.1:8050",
    "localhost",
    "localhost:8051",
    "localhost.:8050",
    "LOCALHOST.evil:8050",
    "0.0.0.0:8050",
    "[::1]:8050",
    "127.1:8050",
    "2130706433:8050",
    "127.0.0.1:08050",
    " 127.0.0.1:8050",
    "127.0.0.1:8050, evil.example",
    "",
)


@pytest.fixture(scope="module")
def app(decode: Run) -> Dash:
    return create_app(OpenRuns([decode]))


@pytest.fixture
def client(app: Dash) -> FlaskClient:
    return app.server.test_client()


@pytest.mark.parametrize("host", BAD_HOSTS)
def test_any_other_host_is_refused(client: FlaskClient, host: str) -> None:
    for url in ("/", "/_dash-layout", "/assets/style.css"):
        answer = client.get(url, headers={"Host": host})
        assert answer.status_code == 403
        assert b"musetrace view printed" in answer.data


@pytest.mark.parametrize("host", ["127.0.0.1:8050", "localhost:8050"])
def test_the_bound_names_are_answered(client: FlaskClient, host: str) -> None:
    assert client.get("/", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "origin",
    ["http://evil.example", "null", "https://127.0.0.1:8050", "http://127.0.0.1:8051", "http://localhost"],
)
def test_any_other_origin_is_refused_on_every_route(app: Dash, client: FlaskClient, origin: str) -> None:
    for url in urls(app):
        assert client.get(url, headers={**OWN, "Origin": origin}).status_code == 403
        assert client.post(url, headers={**OWN, "Origin": origin}, json={}).status_code == 403


def test_every_answer_of_every_route_has_the_headers(app: Dash, client: FlaskClient) -> None:
    statuses = set()
    for url in urls(app):
        read = client.get(url, headers=OWN, buffered=True)
        for answer in (read, client.post(url, headers=OWN), client.get(url)):
            statuses.add(answer.status_code)
            policy = answer.headers["Content-Security-Policy"]
            assert "unsafe-eval" not in policy
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
            assert answer.headers["Referrer-Policy"] == "no-referrer"
            assert answer.headers["X-Frame-Options"] == "DENY"
    assert {200, 403, 404, 405} <= statuses


def test_the_policy_is_well_formed_and_allows_scripts_by_hash_only() -> None:
    directives = dict(part.split(" ", 1) for part in content_security_policy(["'sha256-abc='"]).split("; "))
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", name) for name in directives)
    assert directives["script-src"] == "'self' 'sha256-abc='"
    assert directives["default-src"] == directives["connect-src"] == "'self'"
    for closed in ("object-src", "base-uri", "frame-ancestors"):
        assert directives[closed] == "'none'"
    assert directives["form-action"] == "'self'"


def test_the_page_names_no_other_machine(client: FlaskClient) -> None:
    page = client.get("/", headers=OWN).data.decode()
    assert re.findall(r"https?://|//[a-z]", page) == []
    linked = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert len(linked) > 5
    assert all(url.startswith("/") for url in linked)


@pytest.mark.parametrize("size", [MAX_BODY_BYTES + 1, 2 << 20])
def test_a_large_body_is_refused(client: FlaskClient, size: int) -> None:
    answer = client.post(UPDATE, headers=OWN, data=b"x" * size, content_type="application/json")
    assert answer.status_code == 413


MARK = "echo-of-the-request"


@pytest.mark.parametrize(
    "body",
    [
        b'{"output": "' + MARK.encode(),
        f'["{MARK}"]'.encode(),
        f'"{MARK}"'.encode(),
        b"[" * 100_000,
        f'{{"output": "{MARK}.children", "outputs": [], "inputs": []}}'.encode(),
        f'{{"output": "op-graph.figure", "outputs": "{MARK}", "inputs": 3}}'.encode(),
        f'{{"output": {{"{MARK}": 1}}}}'.encode(),
        b"\xff\xfe",
        b"",
    ],
)
def test_a_body_that_makes_no_sense_is_refused_without_echo_or_stack(
    app: Dash, client: FlaskClient, body: bytes
) -> None:
    for kind in ("application/json", "text/plain", "multipart/form-data"):
        answer = client.post(UPDATE, headers=OWN, data=body, content_type=kind)
        assert 400 <= answer.status_code < 600
        assert MARK not in answer.text
        assert "Traceback" not in answer.text
        assert len(answer.text) < 200
    assert client.get("/", headers=OWN).status_code == 200


OP_OUTPUT = "..op-graph.figure...op-note.children...op-files.children.."


def op_inputs(kind: object, rank: object, step: object, theme: object) -> list[dict[str, Any]]:
    """The inputs of the op timeline's callback."""
    fields = {"kind": kind, "rank": rank, "step": step, "beside": ""}
    return [
        {"id": "run", "property": "data", "value": {"index": 0, "version": 0}},
        *({"id": field(name), "property": "value", "value": value} for name, value in fields.items()),
        {"id": "theme", "property": "data", "value": theme},
    ]


def callback_body(output: str, inputs: list[dict[str, Any]]) -> dict[str, Any]:
    """What the page sends for the draw of the op timeline."""
    outputs = [
        dict(zip(("id", "property"), one.split("."), strict=True)) for one in output.strip(".").split("...")
    ]
    return {"output": output, "outputs": outputs, "inputs": inputs, "changedPropIds": ["run.data"]}


@pytest.mark.parametrize("value", [None, 3, [], {"a": 1}, "../../etc/passwd", "<b>", "9" * 500])
def test_values_that_no_picker_has_give_a_sentence_or_an_error_but_no_stack(
    client: FlaskClient, value: object
) -> None:
    body = callback_body(OP_OUTPUT, op_inputs(value, value, value, value))
    answer = client.post(UPDATE, headers=OWN, json=body)
    assert answer.status_code in (200, 204, 400, 500)
    assert "Traceback" not in answer.text
    assert "root:" not in answer.text


def test_the_page_draws_through_the_callback_route(client: FlaskClient) -> None:
    body = callback_body(OP_OUTPUT, op_inputs("entry", "all", "all", "dark"))
    answer = client.post(UPDATE, headers=OWN, json=body)
    figure = json.loads(answer.text)["response"]["op-graph"]["figure"]
    assert figure["layout"]["yaxis"]["ticktext"] == ["entry", "qkv", "kv_write"]


@pytest.mark.parametrize(
    "path",
    [
        "/assets/../app.py",
        "/assets/%2e%2e/app.py",
        "/assets/..%2fapp.py",
        "/assets/..%5capp.py",
        "/assets//etc/passwd",
        "/static/../../../../etc/passwd",
        "/_dash-component-suites/dash/../../../../etc/passwd",
        "/_dash-component-suites/os/path.py",
        "/_dash-component-suites/plotly/../plotly/__init__.py",
        "/?file=/etc/passwd",
        "/?run=../../etc",
        "//etc/passwd",
    ],
)
def test_no_request_opens_a_path(client: FlaskClient, path: str) -> None:
    answer = client.get(path, headers=OWN)
    assert "root:" not in answer.text
    assert "from __future__" not in answer.text
    assert answer.status_code in (200, 308, 404)
    assert answer.status_code != 200 or "<!DOCTYPE html>" in answer.text


def listeners(port: int) -> set[str]:
    """The local addresses, in hex, on which a TCP socket of this machine listens on a port."""
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        lines = Path(table).read_text().splitlines()[1:] if Path(table).exists() else []
        for line in lines:
            address, hex_port = line.split()[1].split(":")
            if line.split()[3] == "0A" and int(hex_port, 16) == port:
                found.add(address)
    return found


def test_the_environment_opens_nothing(decode_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = {
        "HOST": "0.0.0.0",
        "PORT": "1",
        "DASH_DEBUG": "true",
        "DASH_HOT_RELOAD": "true",
        "DASH_UI": "true",
        "DASH_MCP_ENABLED": "true",
        "DASH_ASSETS_EXTERNAL_PATH": "http://evil.example/",
        "DASH_REQUESTS_PATHNAME_PREFIX": "/evil/",
        "DASH_COMPRESS": "true",
        "FLASK_DEBUG": "1",
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with DashboardServer([decode_path], port=0) as server:
        assert listeners(server.port) <= {"0100007F"}
        assert server.url == f"http://127.0.0.1:{server.port}/"
        with opener().open(server.entry_url, timeout=10) as answer:
            page = answer.read().decode()
            assert answer.headers["Server"] == "musetrace"
    assert "evil" not in page
    assert not server.app.server.debug
    assert not any("mcp" in str(rule) for rule in server.app.server.url_map.iter_rules())


def test_settings_of_dash_that_contradict_each_other_are_one_sentence(
    decode: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DASH_URL_BASE_PATHNAME", "/x/")
    with pytest.raises(UsageError, match="DASH_URL_BASE_PATHNAME"):
        create_app(OpenRuns([decode]))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.0.2.1", "evil.example", "127.0.0.1.evil.example"])
def test_an_address_that_others_can_reach_is_refused(decode_path: Path, host: str) -> None:
    with pytest.raises(UsageError, match="not an address of this machine alone"):
        DashboardServer([decode_path], host=host, port=0)


def test_a_port_that_is_taken_is_one_sentence_and_leaves_the_process_alive(decode_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(MusetraceError, match=f"port {port}: .*choose another"):
            DashboardServer([decode_path], port=port)


def test_hosts_are_those_of_the_bound_address() -> None:
    assert hosts_of("127.0.0.1", 9) == {"127.0.0.1:9", "localhost:9"}
    assert hosts_of("::1", 9) == {"[::1]:9", "127.0.0.1:9", "localhost:9"}


def test_two_applications_in_one_process_know_nothing_of_each_other(
    decode_path: Path, tiny_path: Path
) -> None:
    with DashboardServer([decode_path], port=0) as one, DashboardServer([tiny_path], port=0) as other:
        layouts = []
        for server in (one, other):
            browser = opener()
            browser.open(server.entry_url, timeout=10).close()
            with browser.open(server.url + "_dash-layout", timeout=10) as answer:
                layouts.append(answer.read().decode())
    assert decode_path.name in layouts[0]
    assert decode_path.name not in layouts[1]


def test_several_runs_are_shown_under_names_that_tell_them_apart(decode_path: Path, tiny_path: Path) -> None:
    runs = OpenRuns([open_run(decode_path), open_run(tiny_path), open_run(tiny_path)])
    assert runs.names[0] == decode_path.name
    assert len(set(runs.names)) == 3


def test_a_request_without_a_compressed_answer_gets_a_plain_one(client: FlaskClient) -> None:
    script = "/_dash-component-suites/plotly/package_data/plotly.min.js"
    plain = client.get(script, headers=OWN)
    packed = client.get(script, headers={**OWN, "Accept-Encoding": "gzip"})
    assert packed.headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(packed.data) == plain.data
    assert len(packed.data) < len(plain.data) / 2
