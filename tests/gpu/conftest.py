"""What the tests of the GPU share."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.gpu.draft_case import DraftSetup, DraftSetups
    from tests.gpu.layer_case import Setup, Setups


@pytest.fixture(scope="session")
def cuda() -> ModuleType:
    """The CUDA module; the test is skipped where it was not built or finds no device."""
    module: ModuleType = pytest.importorskip("musetrace._cuda", reason="built without nvcc")
    if module.device_count() == 0:
        pytest.skip("no CUDA device")
    return module


@pytest.fixture(scope="module")
def layer_setups(cuda: ModuleType) -> Iterator[Setups]:
    """`layer_setups(tp, blocks, stop4)`: `mini` on the GPU, each made once in a module."""
    from tests.gpu.layer_case import make_setup

    @cache
    def get(tp: int, blocks: int, stop4: str) -> Setup:
        return make_setup(cuda, tp, blocks, stop4=stop4)

    yield get
    get.cache_clear()


@pytest.fixture(scope="module")
def draft_setups(cuda: ModuleType) -> Iterator[DraftSetups]:
    """`draft_setups(tp, blocks)`: `mini` and its draft on the GPU, each made once in a module."""
    from tests.gpu.draft_case import make_draft_setup

    @cache
    def get(tp: int, blocks: int) -> DraftSetup:
        return make_draft_setup(cuda, tp, blocks)

    yield get
    get.cache_clear()
