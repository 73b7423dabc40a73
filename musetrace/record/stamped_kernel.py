"""What a program has of a kernel that is recorded: where each launch of it is to stamp."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from musetrace.record.kernel_recording import KernelRecording, OpenLaunch

# Of the DLPack standard.
_DLPACK_CPU, _DLPACK_CUDA = 1, 2


class LaunchStamps:
    """Where one launch stamps: pass ``ptr``, or this object itself, as the kernel's parameter.

    ``ptr`` is the address on the device; 0 tells the kernel not to stamp. ``__cuda_array_interface__`` and
    ``__dlpack__`` show the same memory as uint8[size_bytes] to CuPy, Numba, torch and others.
    """

    def __init__(self, ptr: int, size_bytes: int, on_gpu: bool, array: Callable[[], Any]) -> None:
        """``array`` gives an object with ``__dlpack__`` for this memory."""
        self.ptr = ptr
        self.size_bytes = size_bytes
        self._on_gpu = on_gpu
        self._array = array

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Version 3; no stream has to be waited for."""
        if not self._on_gpu:
            raise AttributeError("these stamps are in host memory, which has no __cuda_array_interface__")
        return {
            "shape": (self.size_bytes,),
            "typestr": "|u1",
            "data": (self.ptr, False),
            "strides": None,
            "stream": None,
            "version": 3,
        }

    def __dlpack__(self, *, stream: Any = None, **options: Any) -> Any:
        """A DLPack capsule; no stream has to be waited for."""
        if self._on_gpu:
            return self._array().__dlpack__(stream=-1, **options)
        return self._array().__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        """(kind, index) of the device."""
        if not self._on_gpu:
            return _DLPACK_CPU, 0
        return _DLPACK_CUDA, int(self._array().device.index or 0)


class StampedKernel:
    """A kernel that was attached to a recorder; each launch of it goes into a ``with`` block of its own.

        with gemm.launch() as stamps:
            kernel[grid](..., stamps.ptr)

    ``name`` is what the launches are called in the run, ``blocks`` how many of them the recorder has room
    for. Safe to use from several threads.
    """

    def __init__(self, name: str, blocks: int, launch: Callable[[object, int | None], Any]) -> None:
        """``launch(stream, layer)`` makes the context manager of one launch."""
        self.name = name
        self.blocks = blocks
        self._launch = launch

    def launch(
        self, stream: object = None, *, layer: int | None = None
    ) -> AbstractContextManager[LaunchStamps]:
        """Around one launch, which stamps where the block's value says.

        Inside of a capture the launch gets a place for good, which each replay of the graph stamps; see
        ``Recorder.step``. Otherwise its stamps are copied behind it, beside the stream. Neither waits.

        Args:
            stream: that the kernel is launched in: of torch or CuPy, or its address. None: torch's current.
            layer: a number for the reader, -32768 to 32767; default: how many launches of this kernel the
            step
                had before.

        Raises:
            RecordError: that is no stream, or no layer.
        """
        return self._launch(stream, layer)  # type: ignore[no-any-return]


class RecordedLaunch:
    """The block around a launch that is recorded."""

    def __init__(self, recording: KernelRecording, kernel: int, stream: object, layer: int | None) -> None:
        self._recording = recording
        self._asked = (kernel, stream, layer)
        self._open: OpenLaunch | None = None

    def __enter__(self) -> LaunchStamps:
        """Where to stamp."""
        self._open = self._recording.enter(*self._asked)
        return self._recording.no_stamps if self._open is None else self._open.stamps

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """The launch is in its stream; what the program raised goes on."""
        if self._open is not None:
            self._recording.leave(self._open, raised=kind is not None)


def kernel_that_is_off(name: str, blocks: int, on_gpu: bool) -> StampedKernel:
    """A kernel of a recorder that is off: no launch stamps."""
    nothing = nullcontext(LaunchStamps(0, 0, on_gpu, empty_on_gpu if on_gpu else empty_on_host))
    return StampedKernel(name, blocks, lambda stream, layer: nothing)


def empty_on_host() -> Any:
    """uint8[0]."""
    return np.zeros(0, dtype=np.uint8)


def empty_on_gpu() -> Any:
    """uint8[0] of torch, whose address is 0."""
    import torch

    return torch.empty(0, dtype=torch.uint8, device="cuda")
