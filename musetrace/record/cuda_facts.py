"""What a run says of the GPU that it was recorded on."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import Any

_DRIVER = re.compile(r"\d+\.\d+(\.\d+)?")


def cuda_facts() -> dict[str, Any]:
    """Of torch's current GPU: kind, name, SMs, and the versions of driver and CUDA."""
    import torch

    return {
        "kind": "cuda",
        "name": torch.cuda.get_device_name(),
        "sms": torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count,
        "driver": driver_version(),
        "cuda": torch.version.cuda,
    }


def driver_version() -> str | None:
    """The version of the NVIDIA driver, where Linux tells it."""
    with suppress(OSError):
        found = _DRIVER.search(Path("/proc/driver/nvidia/version").read_text())
        return found.group() if found else None
    return None
