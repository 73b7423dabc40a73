"""Torch's current GPU as a device for other people's kernels: eager launches, streams and CUDA graphs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from musetrace.abi import StampLayout
from musetrace.cuda_module import cuda_module
from musetrace.errors import DeviceError, RecordError
from musetrace.record.cuda_facts import cuda_facts
from musetrace.record.cuda_memory import CopyStream, device_zeros, pinned_zeros
from musetrace.record.drain import read_anchor
from musetrace.record.kernel_device import CLOCK_READS, tick_of
from musetrace.record.kernel_launch import Ended
from musetrace.record.kernel_region import EPOCH_WORD, HEADER_BYTES, HOST_BYTES
from musetrace.record.peer_clock import PeerClock, peer_clock_of
from musetrace.record.stream_capture import CaptureMode

if TYPE_CHECKING:
    from torch import Tensor

_WORD_BYTES = 8
_HEADER_WORDS = ("blocks", "slots", "slot_bytes")


class CudaKernelDevice:
    """Memory, streams and clock of torch's current GPU.

    Raises:
        RecordError: torch, the GPU, or the compiled part that reads its clock is not there.
    """

    kind = "cuda"
    clock_name = "globaltimer"

    def __init__(self) -> None:
        """Read the clock; waits for the GPU."""
        self._torch, self._module = _torch_with_gpu(), _cuda_module()
        self._index = int(self._torch.cuda.current_device())
        self.gpu = self._torch.device("cuda", self._index)
        self.facts: dict[str, Any] = cuda_facts()
        self._mode = CaptureMode()
        try:
            self._module.set_device(self._index)
            self.tick_ns = tick_of(self._module.clock_reads(CLOCK_READS))
            self.anchor = read_anchor(self)
            self.copies = CopyStream()
            self._setup: Any = self._torch.cuda.Stream()
        except (RuntimeError, MemoryError) as error:
            raise RecordError(
                f"cannot read the clock of {self.facts['name']}: {str(error).splitlines()[0]}; this build of "
                "musetrace is for compute capability 9.0 (H100, H200)"
            ) from None

    def peer_clock(self) -> PeerClock:
        """This GPU's end of a comparison of clocks. Raises RuntimeError."""
        return peer_clock_of(self._module, self._index)

    def read_clock(self) -> int:
        """``%globaltimer`` in ns, read by a small kernel; waits for the GPU."""
        return int(self._module.clock_reads(1)[0])

    def stream(self, given: object) -> Any:
        """The stream of torch, of CuPy or of ``__cuda_stream__``, or at an address; None: torch's current."""
        cuda = self._torch.cuda
        if given is None:
            return cuda.current_stream(self._index)
        if isinstance(given, cuda.Stream):
            return given
        address = given if isinstance(given, int) else getattr(given, "ptr", None)
        if hasattr(given, "__cuda_stream__"):
            address = given.__cuda_stream__()[1]
        if not isinstance(address, int) or isinstance(address, bool) or address < 0:
            raise RecordError(
                f"{given!r} is not a stream: give one of torch or CuPy, or the address of a cudaStream_t"
            )
        return cuda.default_stream(self._index) if address == 0 else cuda.ExternalStream(address, self._index)

    def is_capturing(self, stream: Any) -> bool:
        """Whether a graph is being captured from a stream of torch."""
        with self._torch.cuda.stream(stream):
            return bool(self._torch.cuda.is_current_stream_capturing())

    def regions(self, rows: int, layout: StampLayout) -> CudaRegions:
        """Cleared regions. Waits for their clearing alone, on a stream of its own. Raises MemoryError."""
        with self.aside():
            memory = device_zeros(rows, layout.region_bytes, self.gpu, self._setup)
            with self._torch.cuda.stream(self._setup):
                words = memory.view(self._torch.int32)
                for word, name in enumerate(_HEADER_WORDS):
                    words[:, word].fill_(getattr(layout, name))
                words[:, EPOCH_WORD].fill_(1)
            self._setup.synchronize()
        return CudaRegions(self, memory)

    def no_region(self) -> Any:
        """An empty tensor, whose address is 0."""
        return self._torch.empty(0, dtype=self._torch.uint8, device=self.gpu)

    def mark(self, stream: Any) -> Ended:
        """See :meth:`KernelDevice.mark`."""
        ended: Any = self._torch.cuda.Event(blocking=True)
        ended.record(stream)
        return ended  # type: ignore[no-any-return]

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """On this GPU, in relaxed capture mode."""
        with self._torch.cuda.device(self._index), self._mode.relaxed():
            yield

    def enter_thread(self) -> None:
        """Use this GPU, and never break a capture."""
        self._torch.cuda.set_device(self._index)
        self._module.set_device(self._index)
        self._mode.relax()


class CudaCopies:
    """Where copies of some rows go: pinned memory, and as much on the GPU in front of it."""

    def __init__(self, rows: int, size_bytes: int) -> None:
        """Pinned uint8[rows, size_bytes]. Raises MemoryError."""
        self.pinned = pinned_zeros(rows, size_bytes)
        self.memory: npt.NDArray[np.uint8] = self.pinned.numpy()
        self.staged: Tensor | None = None


class CudaRegions:
    """Regions uint8[rows, region_bytes] on the GPU."""

    def __init__(self, device: CudaKernelDevice, memory: Tensor) -> None:
        """``memory`` is cleared, and its headers are filled in with epoch 1."""
        import torch

        self._torch, self._device, self._memory = torch, device, memory
        self._words = memory.view(torch.int64)
        self._epochs = memory.view(torch.int32)[:, EPOCH_WORD]
        self.addresses = [row.data_ptr() for row in memory]

    def array(self, row: int) -> Tensor:
        """See :meth:`KernelRegions.array`."""
        return self._memory[row]

    def copies(self) -> CudaCopies:
        """See :meth:`KernelRegions.copies`."""
        return CudaCopies(*self._memory.shape)

    def bring(self, row: int, into: CudaCopies, stream: Any) -> Ended:
        """See :meth:`KernelRegions.bring`."""
        rows = slice(row, row + 1)
        return self._device.copies.bring(
            stream, [(self._memory[rows], into.pinned[rows])], lambda: self._renew(rows, HOST_BYTES)
        )

    def snapshot(self, rows: int, into: CudaCopies, stream: Any) -> Ended:
        """See :meth:`KernelRegions.snapshot`."""
        first = slice(rows)
        with self._torch.cuda.stream(stream):
            if into.staged is None:
                into.staged = self._torch.empty_like(self._memory)
            into.staged[first].copy_(self._memory[first])
            self._renew(first, HOST_BYTES)
        return self._device.copies.bring(stream, [(into.staged[first], into.pinned[first])], lambda: None)

    def forget(self, rows: int, stream: Any) -> None:
        """See :meth:`KernelRegions.forget`."""
        with self._torch.cuda.stream(stream):
            self._renew(slice(rows), HEADER_BYTES)

    def bring_now(self, rows: int, into: CudaCopies) -> None:
        """See :meth:`KernelRegions.bring_now`."""
        self._torch.cuda.synchronize(self._device.gpu)
        into.pinned[:rows].copy_(self._memory[:rows])

    def _renew(self, rows: slice, kept_bytes: int) -> None:
        """Clear all of some rows but their first bytes, and go on to the next epoch, in torch's stream."""
        self._words[rows, kept_bytes // _WORD_BYTES :].zero_()
        self._epochs[rows].add_(1)


def _torch_with_gpu() -> ModuleType:
    try:
        torch = import_module("torch")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "torch":
            raise
        raise RecordError("recording kernels on a GPU needs torch: pip install 'musetrace[record]'") from None
    if torch.version.cuda is None or not torch.cuda.is_available():
        raise RecordError(
            f"torch {torch.__version__} finds no CUDA device; check nvidia-smi, or attach with device='cpu'"
        )
    return torch


def _cuda_module() -> ModuleType:
    try:
        return cuda_module()
    except DeviceError as error:
        raise RecordError(f"the GPU's clock cannot be read: {error}") from None
