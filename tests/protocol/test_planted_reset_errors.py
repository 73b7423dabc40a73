"""Errors planted in how a copy of the exchange is made empty and used again; each must be named."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.protocol import dense_ops
from tests.protocol import layer as layer_ops
from tests.protocol.clocks import ProtocolError
from tests.protocol.dense_ops import AllReduce
from tests.protocol.geometry import Geometry, Launch, mini
from tests.protocol.layer import Layer
from tests.protocol.test_planted_errors import LAYERS, fails, nothing
from tests.protocol.test_protocol import SAME
from tests.protocol.warp import Warp
from tests.protocol.world import World


def test_no_fence_behind_the_reset() -> None:
    class Unfenced(Warp):
        def fence(self) -> None:
            pass

    World(Geometry(mini(2, 4), "sumsq"), Layer(), warp=Unfenced).run(LAYERS)
    fails("before the reset by sender .* is visible", warp=Unfenced, devices=[[0], [1]])


def test_a_reset_behind_the_last_send() -> None:
    """Two launches are enough: the second fills what the first has made empty."""
    layer = Layer()
    late = replace(layer, reset=nothing, sender=(*layer.sender, layer.reset))
    fails("before the reset by sender .* is visible|sends to a slot that is full", late, devices=[[0], [1]])


def test_a_block_that_sends_nothing_has_a_part_of_the_reset(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dealt to all blocks, as the reset would be on one device."""

    def of_all_blocks(g: Geometry, block: int) -> NDArray[np.int64]:
        lines = np.arange(g.words) // 128
        return np.flatnonzero(lines % g.blocks == block)

    monkeypatch.setattr(Geometry, "_reset_lines", of_all_blocks)
    monkeypatch.setattr(layer_ops, "has_units", lambda w: True)
    launches = [Launch(SAME)] * 2
    World(Geometry(mini(4, 33), "sumsq"), Layer()).run(launches)
    with pytest.raises(ProtocolError, match="before the reset by sender .* is visible"):
        World(Geometry(mini(4, 33), "sumsq"), Layer(), devices=[[0], [1], [2], [3]]).run(launches)


def fails_behind_an_entry(what: str) -> None:
    """Runs an entry and a layer with a planted error, which does not matter on one device."""
    launches = [Launch(entry=True), *LAYERS]
    World(Geometry(mini(2, 5), "sumsq"), Layer()).run(launches)
    with pytest.raises(ProtocolError, match=what):
        World(Geometry(mini(2, 5), "sumsq"), Layer(), devices=[[0], [1]]).run(launches)


def test_an_entry_that_neither_sends_zeros_nor_waits_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    receive = AllReduce.receive_branch
    monkeypatch.setattr(layer_ops, "send_zeros", lambda w: None)
    monkeypatch.setattr(
        AllReduce, "receive_branch", lambda stop, w: nothing() if w.launch.entry else receive(stop, w)
    )
    monkeypatch.setattr(dense_ops, "finish_units", finish_without_branch)
    fails_behind_an_entry("partial1 of rank . copy 1: .* before the reset")


def finish_without_branch(w: Warp, branch: str, region: str) -> None:
    """As the op, but an entry has no branch to read."""
    for index, unit in enumerate(range(*w.shares["units"])):
        if not w.launch.entry:
            w.read(dense_ops.branch_at(w, index), 16, branch)
        w.send_words(w.g.at[region] + unit * dense_ops.UNIT_WORDS + w.group_warp * 32, 32)


def test_an_entry_that_sends_its_zeros_before_the_fence(monkeypatch: pytest.MonkeyPatch) -> None:
    send, reset_idle = dense_ops.send_zeros, Warp.reset_idle

    def early(w: Warp) -> None:
        reset_idle(w)
        if w.launch.entry:
            send(w)

    monkeypatch.setattr(Warp, "reset_idle", early)
    monkeypatch.setattr(layer_ops, "send_zeros", lambda w: None)
    fails_behind_an_entry("partial1 of rank . copy 1: .* before the reset")


def test_zeros_that_are_lost_are_a_deadlock(monkeypatch: pytest.MonkeyPatch) -> None:
    send = dense_ops.send_zeros
    monkeypatch.setattr(layer_ops, "send_zeros", lambda w: None if (w.rank, w.block) == (1, 2) else send(w))
    with pytest.raises(ProtocolError, match=r"deadlock: (.|\n)*slots of partial5"):
        World(Geometry(mini(2, 5), "sumsq"), Layer()).run([Launch(entry=True)])


@pytest.mark.parametrize("devices", [None, [[0], [1]]])
def test_the_copy_in_use_made_empty(devices: list[list[int]] | None) -> None:
    class Wrong(Warp):
        def reset_idle(self) -> None:
            self.idle = self.slots
            super().reset_idle()

    fails(
        "makes it empty while|before the reset|deadlock|sends to a slot that is full",
        warp=Wrong,
        devices=devices,
    )


def test_a_copy_that_is_never_made_empty() -> None:
    class Lazy(Warp):
        def reset_idle(self) -> None:
            pass

    with pytest.raises(ProtocolError, match="sends to a slot that is full"):
        World(Geometry(mini(1, 4), "gather"), Layer(), warp=Lazy).run([*LAYERS, *LAYERS])
