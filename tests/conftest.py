"""Fixtures that every folder of tests uses."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from hypothesis import settings

# Time is never asserted, so no example has a deadline. CI tries the same examples each time.
settings.register_profile("musetrace", deadline=None)
settings.register_profile("musetrace-ci", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("musetrace-ci" if os.environ.get("CI") else "musetrace")

RunCli = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the clone."""
    return Path(__file__).resolve().parent.parent


@pytest.fixture
def run_cli(tmp_path: Path) -> RunCli:
    """`run_cli("report", path, "--json")` runs `python -m musetrace` to its end, in an empty folder.

    The output is text, 100 columns wide and without colours. `env` adds to the environment, `cwd` is another
    folder, and a process that does not end within `timeout_s` seconds fails the test.
    """

    def run(
        *arguments: str | os.PathLike[str],
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        timeout_s: float = 120,
    ) -> subprocess.CompletedProcess[str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("MUSETRACE_")}
        return subprocess.run(
            [sys.executable, "-m", "musetrace", *(os.fspath(argument) for argument in arguments)],
            env=inherited | {"COLUMNS": "100", "NO_COLOR": "1"} | dict(env or {}),
            cwd=tmp_path if cwd is None else cwd,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    return run


@pytest.fixture(scope="module")
def one_torch_thread() -> Iterator[None]:
    """Torch with one thread, for modules of many small products."""
    from musetrace.muse import threads

    with threads.one_torch_thread():
        yield
