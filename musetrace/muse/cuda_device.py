"""The GPU device for Python: ranks of a model on one GPU, a layer a launch (``csrc/megakernel``).

Whole models run on virtual ranks, which share the GPU's SMs, or with some ranks here and the others in other
processes (``peer_device``). A slice is one rank of several that plays back
to itself what its peers would send (loopback), so its results are not those of the whole model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from musetrace.errors import DeviceError, MusetraceError, UsageError
from musetrace.job_table import JobTable
from musetrace.muse.bf16_bits import from_bf16_bits, to_bf16_bits
from musetrace.muse.config import MuseConfig
from musetrace.muse.cuda_draft import RandomDraft, RankDrafts, WholeDraft, add_draft
from musetrace.muse.cuda_errors import gpu_errors
from musetrace.muse.cuda_model import RankWeights
from musetrace.muse.cuda_stamps import StampCopies
from musetrace.muse.cuda_tables import TARGET, step_table, table_of_report
from musetrace.muse.cuda_weights import addresses, rope_table
from musetrace.muse.device import FROM_STATE, TOKENS, LaunchTimeoutError, shape_of
from musetrace.muse.draft.config import DraftConfig
from musetrace.muse.draft.weights import DraftWeights
from musetrace.muse.peer_requirements import RankShare, rank_share
from musetrace.record.cuda_facts import cuda_facts
from musetrace.record.kernel_device import CLOCK_READS, tick_of
from musetrace.record.kernel_launch import Ended
from musetrace.record.peer_clock import peer_clock_of
from musetrace.record.source import SLOT_BYTES_OF_STAMPS, StampSource

GPU = torch.device("cuda")
JOB_TABLE = TARGET
DEFAULT_BUDGET_NS = 1_000_000_000

# Of a whole step: draft_context, draft_head, draft_tree, embed, accept, keep_kv.
_LAUNCHES_BESIDE = 6

Request = tuple[str, int, int, int]


class CudaDevice:
    """The ranks that one GPU holds.

    Args:
        module: the compiled CUDA module, see ``cuda_requirements.require_gpu``.
        config: the model.
        tp: ranks that share the model.
        blocks: blocks of a rank; those of all ranks must run at once, one to an SM.
        capacity: positions in the KV cache, a multiple of 32.
        layers: how many layers are held, from the first; the head follows the last of them.
        share: the ranks held here, when other processes hold the others; see ``PeerDevice``.
        stop4: ``sumsq`` or ``gather``: what the ranks send each other of the experts' outputs.
        budget_ns: how long a wait inside a launch may take before the launch is given up.
        draft: of the model, whose weights come by :meth:`load_draft`; None for a device that only verifies.

    Raises:
        UsageError: the model cannot be run with these numbers.
        DeviceError: CUDA failed.
    """

    def __init__(
        self,
        module: ModuleType,
        config: MuseConfig,
        *,
        tp: int,
        blocks: int,
        capacity: int,
        layers: int,
        share: RankShare | None = None,
        stop4: str = "sumsq",
        budget_ns: int = DEFAULT_BUDGET_NS,
        draft: DraftConfig | None = None,
    ) -> None:
        config.validate(tp)
        self.config, self.tp, self.blocks, self.capacity, self.layers = config, tp, blocks, capacity, layers
        # A stream takes any number; a step is waited for as a whole.
        self.launches_in_flight = 1 << 16
        self.draft = draft
        if draft is not None:
            draft.validate(config, tp)
        self._module = module
        self._gpu_index = torch.cuda.current_device()
        self.gpu = GPU
        self._share = share or rank_share(None, config, tp)
        self.ranks, self.first_rank = self._share.held, self._share.first_rank
        ways = {"stop4": stop4, "loopback": config.slice_tp is not None, "budget_ns": budget_ns}
        held = {} if share is None else {"first_rank": share.first_rank, "held": share.held}
        with self._refused(UsageError):
            self._device = module.MuseDevice(shape_of(config, tp, blocks, capacity, layers), **ways, **held)
        self.job_table = JobTable.built_in(TARGET)
        if draft is not None:
            self.job_table = step_table().table
            self._device.set_stamp_rows(self.job_table.slots, *step_table().first_slots)
        self._tensors: list[dict[str, Tensor]] = []
        self._packed: dict[int, dict[str, int]] = {}
        self._embedding: Tensor | None = None
        self.copies = StampCopies(self._device.stream, self.gpu)
        self._state = (-1, -1)
        self._next_position: int | None = None
        self._launched = self._ended = 0
        self._fetched: dict[int, Ended] = {}

    @property
    def stream(self) -> int:
        """Address of the CUDA stream that all launches go into."""
        return int(self._device.stream)

    def fit(self, build: str) -> dict[str, int]:
        """Of a build of the layer kernel, which may be ``absent``: compiled from a source without stamps.

        Returns:
            ``blocks`` that run at once, ``registers`` and ``local_bytes`` of a thread, and ``shared_bytes``.
        """
        with self._refused():
            return dict(self._device.fit(build))

    def load(self, weights: RankWeights) -> None:
        """Make all weights and keep them; before the first launch.

        Raises:
            DeviceError: the GPU has no room for them.
        """
        rope = self._keep({"rope": rope_table(self.config, self.capacity, self.gpu)})
        self._device.set_rope(rope["rope"])
        with self._refused():
            for rank in range(self.ranks):
                for layer in range(self.layers):
                    of_layer = self._keep(weights.layer(self.first_rank + rank, layer))
                    is_bf16 = self.config.expert_format(layer) == "bf16"
                    self._device.set_layer(rank, layer, of_layer, self.config.is_global(layer), is_bf16)
                    self._packed.setdefault(layer, of_layer)
                head = self._keep(weights.head(self.first_rank + rank))
                self._device.set_head(rank, head)
                self._packed.setdefault(self.layers, head | rope)
            if self.draft is not None:
                self._embedding = weights.embedding()
        # They were made in torch's stream and are read in another.
        torch.cuda.synchronize()

    def load_draft(self, draft: DraftWeights) -> None:
        """Give every rank its share of the draft that the device was made for; behind :meth:`load`.

        Raises:
            UsageError: it is another one, or the GPU cannot run it.
            DeviceError: the GPU has no room for it.
        """
        if draft.config != self.draft or self._embedding is None:
            raise UsageError(f"the device was made for another draft than {draft.config.name}")
        self._add_draft(WholeDraft(draft, self.config, self.tp, self._embedding))

    def load_random_draft(self, seed: int) -> None:
        """As :meth:`load_draft`, with one made on the GPU: for ranks whose weights are made there too."""
        if self.draft is None or self._embedding is None:
            raise UsageError("the device was made without a draft")
        self._add_draft(RandomDraft(self.draft, self.tp, seed, self._embedding))

    def _add_draft(self, weights: RankDrafts) -> None:
        if self.draft is None:
            raise UsageError("the device was made without a draft")
        with self._refused(UsageError):
            kept = add_draft(
                *(self._device, self.draft, self.tp, self.capacity, weights),
                gpu=self.gpu,
                first_rank=self._share.first_rank,
            )
        self._tensors += [{str(number): tensor} for number, tensor in enumerate(kept)]

    def set_draft_kv(self, rank: int, layer: int, k: npt.NDArray[Any], v: npt.NDArray[Any]) -> None:
        """As :meth:`set_kv`, of a draft layer."""
        values = np.ascontiguousarray(np.swapaxes(v, 1, 2))
        with self._refused():
            self._device.set_draft_values("k", rank, layer, to_bf16_bits(k))
            self._device.set_draft_values("v", rank, layer, to_bf16_bits(values))

    def set_step(self, **step: Any) -> None:
        """See ``CpuDevice.set_step``."""
        try:
            self._device.set_step(step)
        except ValueError as error:
            raise UsageError(f"a step cannot start so: {error}") from None
        self._state = (FROM_STATE, self._state[1])
        self._next_position = step.get("position")

    def step(self, rank: int = 0) -> dict[str, Any]:
        """See ``CpuDevice.step``; all ranks of a GPU have one state."""
        with self._refused():
            state = dict(self._device.step())
        self._next_position = int(state["position"])
        return state

    def packed(self, layer: int) -> dict[str, int]:
        """Device addresses of the first rank's layer, by the kernel's names (``cuda_weights.upload_layer``).

        Behind the last layer: of the head, and ``rope``, the table of :func:`cuda_weights.rope_table`.
        """
        return dict(self._packed[layer])

    def _keep(self, tensors: dict[str, Tensor]) -> dict[str, int]:
        """The addresses of tensors, which live as long as the device."""
        self._tensors.append(tensors)
        return addresses(tensors)

    def set_residual(self, residual: npt.NDArray[np.float32]) -> None:
        """See :meth:`Device.set_residual`."""
        values = np.ascontiguousarray(residual, dtype=np.float32)
        for rank in range(self.ranks):
            self._put("residual", rank, 0, values)

    def residual(self, rank: int) -> npt.NDArray[np.float32]:
        """The residual stream float32[16, hidden] that the last launch left on a rank."""
        return np.asarray(self._values("residual", rank))

    def logits(self) -> npt.NDArray[np.float32]:
        """See :meth:`Device.logits`."""
        return np.concatenate([self._values("logits", rank) for rank in range(self.ranks)], axis=1)

    def projection(self, rank: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """Rank's q and gate, float32[16, heads of the rank * head_dim], for the next launch."""
        return from_bf16_bits(self._values("q", rank)), from_bf16_bits(self._values("gate", rank))

    def set_projection(self, rank: int, q: npt.NDArray[Any], gate: npt.NDArray[Any]) -> None:
        """Inverse of :meth:`projection`; values are rounded to bf16."""
        self._put("q", rank, 0, to_bf16_bits(q))
        self._put("gate", rank, 0, to_bf16_bits(gate))

    def kv(self, rank: int, layer: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """Rank's keys and values of a layer, float32[kv heads of the rank, capacity, head_dim]."""
        k, v = (from_bf16_bits(self._values(name, rank, layer)) for name in ("k", "v"))
        return k, v.transpose(0, 2, 1)

    def set_kv(self, rank: int, layer: int, k: npt.NDArray[Any], v: npt.NDArray[Any]) -> None:
        """Inverse of :meth:`kv`; values are rounded to bf16. The GPU keeps values by dimension."""
        self._put("k", rank, layer, to_bf16_bits(k))
        self._put("v", rank, layer, to_bf16_bits(np.ascontiguousarray(np.swapaxes(v, 1, 2))))

    def set_lost_block(self, block: int | None) -> None:
        """Let a block of the model's rank 0 end before it sends its out-projection from now on: a fault."""
        self._device.set_lost_block(0xFFFFFFFF if block is None else block)

    def launch(
        self, kind: str, layer: int, position: int, stamps: str = "off", address: int = 0, epoch: int = 0
    ) -> int:
        """See :meth:`Device.launch`."""
        region = self.copies.region_of(address) if address else None
        with self._refused():
            self._set_state(position, 0)
            pointer = 0 if region is None else region.data_ptr()
            self._device.launch((kind, layer, pointer, epoch), stamps)
        if kind == "accept":
            self._next_position = None
        self._launched += 1
        if region is not None:
            self._fetched[self._launched] = self.copies.fetch(region, [address])
        return self._launched

    def capture(self, requests: Sequence[Request], stamps: str) -> int:
        """A graph of launches (kind, layer, device address of the stamps, epoch); returns its number."""
        with self._refused():
            return int(self._device.capture(list(requests), stamps))

    def replay(self, graph: int, position: int, epoch: int) -> int:
        """Queue a graph and return its ticket; ``epoch`` is added to those of its launches."""
        with self._refused():
            self._set_state(position, epoch)
            self._device.replay(graph)
        self._next_position = None
        self._launched += 1
        return self._launched

    def wait(self, ticket: int) -> None:
        """See :meth:`Device.wait`; waits for all that was launched."""
        if ticket <= self._ended:
            return
        try:
            with self._refused():
                self._device.synchronize()
        finally:
            self._ended = self._launched
            # Who was given up before its stamps were asked for never will be.
            self._fetched.clear()

    def stamps_ready(self, ticket: int) -> Callable[[], None]:
        """See :meth:`Device.stamps_ready`."""
        return self._fetched.pop(ticket).synchronize

    def stamp_source(self, stamps: str, model: dict[str, Any], build: dict[str, Any]) -> StampSource:
        """See :meth:`Device.stamp_source`. There are buffers for two steps: one runs, one is drained."""
        fit = self.fit(stamps)
        return StampSource(
            job_table=self.job_table,
            ranks=self.ranks,
            blocks=self.blocks,
            slot_bytes=SLOT_BYTES_OF_STAMPS[stamps],
            device=cuda_facts()
            | {"virtual_ranks": self.ranks if self.config.slice_tp is None else "loopback"},
            model=model,
            build=build | {"registers": int(fit["registers"]), "spilled_bytes": int(fit["local_bytes"])},
            clock_name="globaltimer",
            tick_ns=self._tick_ns(),
            read_clock=self.clock_ns,
            allocate=self.copies.allocate,
            buffers=max(64, 2 * (self.layers + 2 + self._launches_beside_the_pass())),
            peer_clock=lambda: peer_clock_of(self._module, self._gpu_index),
        )

    def clock_ns(self) -> int:
        """The clock of the stamps, ``%globaltimer``, in ns: read by a small kernel of its own.

        From any thread: of several GPUs, CUDA has a current one for each thread.
        """
        with self._refused():
            self._module.set_device(self._gpu_index)
            return int(self._module.clock_reads(1)[0])

    def _tick_ns(self) -> int:
        """What all steps of the clock are a multiple of, in ns."""
        with self._refused():
            return tick_of(self._module.clock_reads(CLOCK_READS))

    def _set_state(self, position: int, epoch: int) -> None:
        """For the next launches; at ``FROM_STATE`` the device's own state goes on."""
        if position == FROM_STATE:
            self._require_room()
        if self._state == (position, epoch):
            return
        if position != FROM_STATE:
            self._device.set_state(position, epoch)
        elif self._state[1] != epoch:
            self._device.set_epoch(epoch)
        self._state = (position, epoch)

    def _require_room(self) -> None:
        """Raises DeviceError when the state's step reaches beyond the cache."""
        position = self._next_position
        if position is None:
            position = int(self.step()["position"])
        if position + TOKENS > self.capacity:
            raise DeviceError(
                f"the KV cache is full: position {position} + {TOKENS} tokens > {self.capacity}"
            )

    def _launches_beside_the_pass(self) -> int:
        return 0 if self.draft is None else self.draft.num_hidden_layers + _LAUNCHES_BESIDE

    def _values(self, name: str, rank: int, layer: int = 0) -> npt.NDArray[Any]:
        with self._refused():
            return np.asarray(self._device.values(name, rank, layer))

    def _put(self, name: str, rank: int, layer: int, values: npt.NDArray[Any]) -> None:
        with self._refused():
            self._device.set_values(name, rank, layer, values)

    @contextmanager
    def _refused(self, refusal: type[MusetraceError] = DeviceError) -> Iterator[None]:
        """Errors of the compiled device as those of this package, one line each."""
        with gpu_errors(self.config.name, refusal):
            try:
                yield
            except self._module.LaunchFailed as error:
                raise LaunchTimeoutError(error.args[0], table_of_report(error.args[0])) from None
