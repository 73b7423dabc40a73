"""What must be there before anything is launched on a GPU; each lack is one line."""

from __future__ import annotations

from types import ModuleType

import torch

from musetrace.cuda_module import cuda_module, require_capability
from musetrace.errors import DeviceError
from musetrace.muse.cuda_memory import MemoryNeed
from musetrace.record.process_place import ProcessPlace

# The kernels are compiled for sm_90a, which no other architecture runs.
_CPU_INSTEAD = "or use --device cpu"


def require_gpu(place: ProcessPlace | None = None) -> ModuleType:
    """The compiled CUDA module (``musetrace._cuda``), when there is a GPU that it can use.

    Args:
        place: of this process among several; its GPU becomes the current one.

    Raises:
        DeviceError: there is none; the message says what is missing.
    """
    module = cuda_module(f", {_CPU_INSTEAD}")
    if torch.version.cuda is None:
        raise DeviceError(
            f"torch {torch.__version__} is built without CUDA; install a torch with CUDA, {_CPU_INSTEAD}"
        )
    if module.device_count() == 0 or not torch.cuda.is_available():
        raise DeviceError(f"no CUDA device can be used; check the driver and nvidia-smi, {_CPU_INSTEAD}")
    if place is not None:
        _use_own_gpu(module, place)
    found = tuple(torch.cuda.get_device_capability())
    require_capability(torch.cuda.get_device_name(), found, "the kernel runs", f", {_CPU_INSTEAD}")
    return module


def _use_own_gpu(module: ModuleType, place: ProcessPlace) -> None:
    count = torch.cuda.device_count()
    if place.local_process >= count:
        raise DeviceError(
            f"process {place.process} (LOCAL_RANK {place.local_process}) has no GPU of its own: {count} can "
            "be seen; start as many processes as there are GPUs, each can hold several ranks"
        )
    torch.cuda.set_device(place.local_process)
    module.set_device(place.local_process)


def gpu_is_usable() -> bool:
    """Whether :func:`require_gpu` would succeed."""
    try:
        require_gpu()
    except DeviceError:
        return False
    return True


def require_memory(need: MemoryNeed, model: str) -> None:
    """Check that the GPU has room.

    Raises:
        DeviceError: it has not; the message has the bytes that are needed and those that are free.
    """
    # What torch keeps of an earlier model is free too.
    torch.cuda.empty_cache()
    free_bytes, total_bytes = torch.cuda.mem_get_info()
    if need.bytes > free_bytes:
        weights, without = f"{_gb(need.weight_bytes)} weights of {need.layers} layers", "fewer --layers"
        if need.drafts:
            weights, without = f"{weights} and a draft", f"{without}, no draft (--guesses none)"
        if need.sequences > 1:
            without = "a smaller --batch"
        raise DeviceError(
            f"model {model} needs {_gb(need.bytes)} of GPU memory ({weights}, {_gb(need.kv_bytes)} KV cache, "
            f"{_gb(need.working_bytes)} to work in), and {_gb(free_bytes)} of {_gb(total_bytes)} are free; "
            f"use {without} or another --model"
        )


def _gb(size_bytes: int) -> str:
    return f"{size_bytes / 1e9:.1f} GB"
