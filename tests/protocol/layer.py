"""csrc/megakernel/layer.cuh: which warp does what, in which order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.protocol.barriers import Waiting
from tests.protocol.dense_ops import (
    O_PROJ,
    POOLER,
    QKV,
    STOP_1,
    STOP_5,
    UNPOOLER,
    Pooler,
    Qkv,
    has_units,
    send_zeros,
)
from tests.protocol.expert_ops import Attention, Combine, Experts, Routing
from tests.protocol.geometry import FIRST_GROUP_WARP, SENDER
from tests.protocol.warp import Warp

Op = Callable[[Warp], Waiting]


def reset_exchange(w: Warp) -> Waiting:
    """Sender of a block that owns columns: its part of the idle copy made empty; an entry sends zeros."""
    if has_units(w):
        w.reset_idle()
        w.fence()
        if w.launch.entry:
            send_zeros(w)
    yield from ()


@dataclass(frozen=True)
class Layer:
    """The ops of each role. Called with a warp it is what the warp does in its launch."""

    loader: tuple[Op, ...] = (O_PROJ.load, POOLER.load, Pooler.load_router, Experts.load, UNPOOLER.load)
    input: tuple[Op, ...] = (STOP_1.send, Pooler.send, Experts.input, STOP_5.send)
    sender: tuple[Op, ...] = (STOP_1.send, Pooler.send, Experts.send, STOP_5.send)
    group: tuple[Op, ...] = (
        *(Attention.group, O_PROJ.multiply, STOP_1.group, POOLER.multiply, Pooler.group, Routing.group),
        *(Experts.group, Combine.group, UNPOOLER.multiply, STOP_5.group),
    )
    next_loader: tuple[Op, ...] = (QKV.load,)
    next_group: tuple[Op, ...] = (QKV.multiply, Qkv.group)
    entry_group: tuple[Op, ...] = (STOP_5.group,)
    reset: Op = reset_exchange

    def __call__(self, w: Warp) -> Waiting:
        """All ops of the warp, one after the other."""
        for op in self._ops(w):
            w.agent.site = op.__qualname__
            yield from op(w)
        w.agent.site = "end"

    def _ops(self, w: Warp) -> tuple[Op, ...]:
        entry, projects = w.launch.entry, w.launch.projects
        if w.warp == 0:
            return (() if entry else self.loader) + (self.next_loader if projects else ())
        if w.warp < SENDER:
            return () if entry else self.input
        if w.warp == SENDER:
            return (self.reset, *(() if entry else self.sender))
        assert w.warp >= FIRST_GROUP_WARP
        return (self.entry_group if entry else self.group) + (self.next_group if projects else ())
