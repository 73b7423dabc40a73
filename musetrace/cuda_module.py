"""The compiled CUDA module, ``musetrace._cuda``: there when nvcc was found where the package was built."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from musetrace.errors import DeviceError

_MOST_CHARS = 160


def cuda_module(otherwise: str = "") -> ModuleType:
    """Import it.

    Args:
        otherwise: what else can be done, the end of the message: ``, or use --device cpu``.

    Raises:
        DeviceError: it is not there, or cannot be loaded.
    """
    try:
        return import_module("musetrace._cuda")
    except ImportError as error:
        raise DeviceError(
            "this build has no CUDA part: musetrace._cuda cannot be imported "
            f"({' '.join(str(error).split())[:_MOST_CHARS]}); install musetrace where nvcc is found"
            f"{otherwise}"
        ) from None
