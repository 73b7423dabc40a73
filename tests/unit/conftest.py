"""Fixtures of the unit tests."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from tests.host_kernel import build_libraries


@pytest.fixture(scope="session")
def libraries(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, ctypes.CDLL]:
    """A kernel of host code through the public header, in its three builds."""
    return build_libraries(repository, tmp_path_factory.mktemp("kernels"))
