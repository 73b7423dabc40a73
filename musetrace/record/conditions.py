"""The state of the device around a measurement: clocks, power, temperature, what holds it back.

Each reading is one dict of plain JSON types, ``{"missing": why}`` where nothing can be read.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

_TIMEOUT_S = 10
_FIELDS = {
    "clocks.sm": "sm_mhz",
    "clocks.max.sm": "sm_most_mhz",
    "clocks.mem": "memory_mhz",
    "power.draw": "power_w",
    "power.limit": "power_limit_w",
    "temperature.gpu": "temperature_c",
}
# The name before driver 535, and since; the bits are those of NVML.
_THROTTLE_FIELDS = ("clocks_event_reasons.active", "clocks_throttle_reasons.active")
_THROTTLE_BITS = {
    0x1: "idle",
    0x2: "application clocks",
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
    0x100: "display clocks",
}
_KEPT_CLOCKS = ("sm_mhz", "sm_most_mhz", "memory_mhz", "power_limit_w")


class Conditions:
    """Readings before and after; ``noted`` has them by these names.

    Args:
        read: makes one reading.
    """

    def __init__(self, read: Callable[[], dict[str, Any]]) -> None:
        self.noted: dict[str, dict[str, Any]] = {}
        self._read = read

    def note(self) -> None:
        """Make the next reading: the first is ``before``, the last is ``after``."""
        self.noted["after" if self.noted else "before"] = self._read()


def gpu_conditions(uuid: str | None = None) -> dict[str, Any]:
    """What ``nvidia-smi`` says of a GPU now.

    Args:
        uuid: of the GPU, ``GPU-...``; None for the first one.
    """
    problem = ""
    for throttle in _THROTTLE_FIELDS:
        command = [
            "nvidia-smi",
            f"--id={uuid or 0}",
            f"--query-gpu={','.join((*_FIELDS, throttle))}",
            "--format=csv,noheader,nounits",
        ]
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                timeout=_TIMEOUT_S,
                check=False,
                stdin=subprocess.DEVNULL,
            )
        except FileNotFoundError:
            return {"missing": "nvidia-smi is not on PATH"}
        except (OSError, subprocess.TimeoutExpired) as error:
            return {"missing": f"nvidia-smi: {type(error).__name__}"}
        values = [value.strip() for value in done.stdout.strip().split(",")]
        if done.returncode == 0 and len(values) == len(_FIELDS) + 1:
            return _read(values)
        problem = " ".join((done.stdout + done.stderr).split())[:120]
    return {"missing": f"nvidia-smi: {problem or 'it said nothing'}"}


def _read(values: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {
        name: _number(value) for name, value in zip(_FIELDS.values(), values, strict=False)
    }
    with suppress(ValueError):
        bits = int(values[-1], 16)
        found["throttled_by"] = [text for bit, text in _THROTTLE_BITS.items() if bits & bit]
    return found


def _number(text: str) -> float | None:
    with suppress(ValueError):
        return float(text)
    return None


def gpu_now() -> dict[str, Any]:
    """What ``nvidia-smi`` says of the GPU that torch uses."""
    import torch

    return gpu_conditions(f"GPU-{torch.cuda.get_device_properties(torch.cuda.current_device()).uuid}")


def clocks_now(kind: object) -> dict[str, Any]:
    """What holds for a whole recording of a device of that kind: clocks, power limit, what holds it back.

    Empty where nothing can be read, and for a CPU. Of the SM clock it is the one of now.
    """
    if kind != "cuda":
        return {}
    try:
        read = gpu_now()
    except Exception:  # whatever is wrong with it, the recording does without
        return {}
    found = {name: read[name] for name in _KEPT_CLOCKS if read.get(name) is not None}
    held_back = [by for by in read.get("throttled_by", ()) if by != _THROTTLE_BITS[1]]
    return {**found, "throttled_by": held_back} if found else {}


def cpu_conditions() -> dict[str, Any]:
    """How busy this machine is, and how its CPU clock is governed."""
    found: dict[str, Any] = {"cpus": len(os.sched_getaffinity(0)), "load_1_min": round(os.getloadavg()[0], 2)}
    with suppress(OSError):
        governor = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").read_text()
        found["governor"] = governor.strip()
    return found
