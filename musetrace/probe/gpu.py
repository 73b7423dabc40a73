"""The GPU that is measured: found without torch, or refused in one line."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType
from typing import Any

from musetrace.cuda_module import cuda_module, dotted, require_capability
from musetrace.errors import DeviceError
from musetrace.record.cuda_facts import driver_version

# The kernels are compiled for sm_90a, which no other architecture runs.
_CPU_INSTEAD = "or use --device cpu"


@dataclass(frozen=True)
class Gpu:
    """A GPU that can be measured.

    Attributes:
        module: the compiled measurements, ``musetrace._cuda.probe``.
        clock_reads: successive reads of %globaltimer, ``musetrace._cuda.clock_reads``.
        device: what CUDA says of it, for people and for the manifest.
        quick: a tenth of the samples will do.
    """

    module: ModuleType
    clock_reads: Any
    device: dict[str, Any]
    quick: bool = False

    def warm_up(self) -> None:
        """Some tens of milliseconds of reading memory, after which the clocks are those of work."""
        self.module.stream_times([3], 1 << 30, 100)

    def few(self, samples: int) -> int:
        """So many samples, or a tenth where the caller is in a hurry; one at least."""
        return max(samples // 10, 1) if self.quick else samples


def require_gpu(quick: bool = False) -> Gpu:
    """The first GPU.

    Raises:
        DeviceError: there is none that this build can use; the message says what is missing.
    """
    module = cuda_module(f", {_CPU_INSTEAD}")
    if not hasattr(module, "probe"):
        raise DeviceError(
            f"the compiled CUDA part is older than this package; install it again, {_CPU_INSTEAD}"
        )
    if module.device_count() == 0:
        raise DeviceError(f"no CUDA device can be used; check the driver and nvidia-smi, {_CPU_INSTEAD}")
    try:
        device = module.probe.device_facts()
    except RuntimeError as error:
        raise DeviceError(f"the GPU failed: {error}; see nvidia-smi, {_CPU_INSTEAD}") from None
    found = tuple(device["compute_capability"])
    require_capability(device["name"], found, "the probe's kernels run", f", {_CPU_INSTEAD}")
    described = {"kind": "cuda", **device, "compute_capability": dotted(found), "driver": driver_version()}
    return Gpu(module.probe, module.clock_reads, described, quick)


def gpu_is_usable() -> bool:
    """Whether :func:`require_gpu` would succeed."""
    try:
        require_gpu()
    except DeviceError:
        return False
    return True
