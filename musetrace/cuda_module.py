"""The compiled CUDA module, ``musetrace._cuda``: there when nvcc was found where the package was built."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from musetrace.errors import DeviceError

# What its kernels are built for.
COMPUTE_CAPABILITY = (9, 0)
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


def require_capability(name: str, found: tuple[int, ...], what_runs: str, otherwise: str) -> None:
    """Check a GPU's compute capability.

    Args:
        name: of the GPU.
        found: its capability.
        what_runs: the subject of the refusal, ``the kernel runs``.
        otherwise: what else can be done, the end of the message.

    Raises:
        DeviceError: it is another than the kernels are built for.
    """
    if found != COMPUTE_CAPABILITY:
        raise DeviceError(
            f"{name} has compute capability {dotted(found)}, and {what_runs} on "
            f"{dotted(COMPUTE_CAPABILITY)} (Hopper) only; use an H100 or H200{otherwise}"
        )


def dotted(capability: tuple[int, ...]) -> str:
    """As NVIDIA writes it: ``9.0``."""
    return ".".join(str(part) for part in capability)
