"""What the tests of the GPU share."""

from __future__ import annotations

from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def cuda() -> ModuleType:
    """The CUDA module; the test is skipped where it was not built or finds no device."""
    module: ModuleType = pytest.importorskip("musetrace._cuda", reason="built without nvcc")
    if module.device_count() == 0:
        pytest.skip("no CUDA device")
    return module
