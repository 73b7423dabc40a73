"""The graphs of a whole step, of its parts, and of the chain of ordinary kernels over the same weights."""

from __future__ import annotations

import time
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch

from musetrace.muse.cuda_device import CudaDevice
from musetrace.muse.cuda_requirements import require_gpu
from musetrace.muse.cuda_weights import load_chain
from musetrace.muse.device import FROM_STATE, shape_of
from musetrace.muse.engine import Engine
from musetrace.muse.graph_pass import StepGraph
from musetrace.muse.launch_plan import PlannedLaunch
from musetrace.muse.slice_steps import fill_cache, fill_draft_cache, random_rows
from musetrace.overhead.clocks import CudaStopwatch

STAMPS = ("off", "register", "store")
CHAIN_MODES = {"chain, programmatic launch": "pdl", "chain": "graph"}
_DRAFT = ("draft_context", "draft_layer", "draft_head", "draft_tree")
_BEHIND = ("accept", "keep_kv")


@dataclass(frozen=True)
class Replay:
    """One replay: ns between events on the GPU, and of the host to queue it; None where it is not known."""

    device_ns: float
    queued_ns: float | None


class StepGraphs:
    """Graphs by name. Every replay begins at the same position, so that all do the same work.

    ``step, BUILD`` are whole steps; ``draft``, ``verify`` and ``accept`` the parts of one without stamps;
    ``chain...`` a verify pass of the chain.

    Args:
        engine: with a draft, whose launches are graphs.
        context: positions in front of the step; keys and values there are random.
        seed: of them.

    Raises:
        DeviceError: the GPU has no room for all of it.
    """

    def __init__(self, engine: Engine, context: int, seed: int) -> None:
        assert isinstance(engine.device, CudaDevice)
        self._device, self._context, self._seed = engine.device, context, seed
        steps = engine.whole_steps()
        steps.begin(context)
        fill_cache(engine.device, seed)
        fill_draft_cache(engine.device, seed)
        draft = [one for one in steps.plan if one.kind in _DRAFT]
        behind = [one for one in steps.plan if one.kind in _BEHIND]
        verify = [one for one in steps.plan if one not in draft and one not in behind]
        parts = {"draft": draft, "verify": verify, "accept": behind}
        self.launches = {"step": len(steps.plan)} | {name: len(part) for name, part in parts.items()}
        plans: dict[str, tuple[list[PlannedLaunch], str]] = {
            f"step, {build}": (list(steps.plan), build) for build in STAMPS
        }
        plans |= {name: (part, "off") for name, part in parts.items()}
        self._graphs = {name: StepGraph(engine.device, *of) for name, of in plans.items()}
        stream = torch.cuda.ExternalStream(engine.device.stream)  # type: ignore[no-untyped-call]
        self._stopwatch = CudaStopwatch(stream, head_start=True)
        self._chain = chain_over(require_gpu(), engine.device)
        self._chain_graphs: dict[str, int] = {}
        if self._chain is not None:
            self._chain.set_position(context)
            layers = [*range(engine.device.layers)]
            self._chain_graphs = {
                name: self._chain.capture(mode, layers, True, True) for name, mode in CHAIN_MODES.items()
            }

    @property
    def names(self) -> list[str]:
        """Of all graphs."""
        return [*self._graphs, *self._chain_graphs]

    @property
    def kernels_of_chain(self) -> int | None:
        """Of a layer; None where there is no chain."""
        return None if self._chain is None else int(self._chain.kernels_per_layer)

    def replay(self, name: str) -> Replay:
        """Run a graph once. Raises DeviceError when a launch was given up."""
        if self._chain is not None and name in self._chain_graphs:
            self._chain.set_residual(random_rows(self._device.config, self._seed, 0))
            # The second of two replays back to back.
            return Replay(float(self._chain.time_graphs([self._chain_graphs[name]], 1)[0][-1]) * 1e6, None)
        self._device.set_step(position=self._context)
        self._stopwatch.start()
        begin_ns = time.perf_counter_ns()
        ticket = self._graphs[name].replay(FROM_STATE)
        queued_ns = time.perf_counter_ns() - begin_ns
        self._stopwatch.stop()
        self._device.wait(ticket)
        return Replay(self._stopwatch.elapsed_ns(), float(queued_ns))


def chain_over(module: ModuleType, device: CudaDevice) -> Any | None:
    """The chain with the weights of the device's one rank; None where there are several."""
    config = device.config
    if device.ranks != 1:
        return None
    shape = shape_of(config, device.tp, device.blocks, device.capacity, config.num_hidden_layers)
    chain = module.BaselineChain(shape, loopback=config.slice_tp is not None)
    head = device.packed(device.layers)
    rope = head.pop("rope")
    load_chain(chain, config, map(device.packed, range(device.layers)), head, rope)
    return chain
