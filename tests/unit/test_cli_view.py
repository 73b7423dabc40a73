"""``view``: where it serves, and what it says when it cannot. Its page is tested in tests/dashboard."""

from __future__ import annotations

import importlib.abc
import json
import socket
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from musetrace.cli import main

Out = pytest.CaptureFixture[str]


@pytest.fixture
def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """The calls of a stand-in for the dashboard's serve()."""
    calls: list[tuple[Any, ...]] = []
    stand_in = ModuleType("musetrace.dashboard")

    def serve(runs: list[Path], host: str, port: int, *, open_browser: bool, **options: Any) -> None:
        calls.append((runs, host, port, open_browser, options["allow_remote"]))
        if options["announce"] is not None:
            options["announce"](f"http://{host}:{port}/?token=t")

    stand_in.serve = serve  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "musetrace.dashboard", stand_in)
    return calls


def test_it_serves_on_this_machine(served: list[tuple[Any, ...]], free_port: int) -> None:
    assert main(["view", "run", "--port", str(free_port)]) == 0
    assert main(["view", "run", "--port", str(free_port), "--no-browser", "--host", "localhost"]) == 0
    assert main(["view", "run", "other", "--port", str(free_port)]) == 0
    assert served == [
        ([Path("run")], "127.0.0.1", free_port, True, False),
        ([Path("run")], "localhost", free_port, False, False),
        ([Path("run"), Path("other")], "127.0.0.1", free_port, True, False),
    ]


def test_other_machines_are_served_with_a_warning(
    served: list[tuple[Any, ...]], free_port: int, capsys: Out
) -> None:
    assert main(["view", "run", "--host", "0.0.0.0", "--allow-remote", "--port", str(free_port)]) == 0
    assert served == [([Path("run")], "0.0.0.0", free_port, True, True)]
    warned = capsys.readouterr().err
    assert warned == "musetrace: warning: 0.0.0.0 is open to other machines, without encryption\n"
    assert main(["view", "run", "--allow-remote", "--port", str(free_port)]) == 0
    assert capsys.readouterr().err == ""


def test_json_tells_the_address(served: list[tuple[Any, ...]], free_port: int, capsys: Out) -> None:
    assert main(["view", "run", "--port", str(free_port), "--json"]) == 0
    url = f"http://127.0.0.1:{free_port}/?token=t"
    assert json.loads(capsys.readouterr().out) == {"runs": ["run"], "url": url}


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.7", "example.org", "", "127.0.0.1.evil"])
def test_an_address_that_others_can_reach_is_refused(
    served: list[tuple[Any, ...]], host: str, capsys: Out
) -> None:
    assert main(["view", "run", "--host", host]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"musetrace: --host {host} is not an address of this machine alone")
    assert err.count("\n") == 1
    assert served == []


@pytest.mark.parametrize("port", ["0", "-1", "65536"])
def test_a_port_that_there_is_not_is_refused(served: list[tuple[Any, ...]], port: str, capsys: Out) -> None:
    assert main(["view", "run", "--port", port]) == 2
    assert capsys.readouterr().err == f"musetrace: --port {port} is not a port: give one from 1 to 65535\n"
    assert served == []


def test_a_port_in_use_is_told_with_the_remedy(served: list[tuple[Any, ...]], capsys: Out) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert main(["view", "run", "--port", str(port)]) == 1
    assert capsys.readouterr().err == f"musetrace: port {port} is in use: choose another with --port N\n"
    assert served == []


class NoDash(importlib.abc.MetaPathFinder):
    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:
        if fullname == "musetrace.dashboard":
            raise ModuleNotFoundError("No module named 'dash'", name="dash")


def test_without_dash_it_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, free_port: int, capsys: Out
) -> None:
    monkeypatch.delitem(sys.modules, "musetrace.dashboard", raising=False)
    monkeypatch.setattr(sys, "meta_path", [NoDash(), *sys.meta_path])
    assert main(["view", "run", "--port", str(free_port)]) == 1
    assert (
        capsys.readouterr().err
        == "musetrace: view needs the package dash: pip install 'musetrace[dashboard]'\n"
    )
