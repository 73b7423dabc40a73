"""A compiled chain of ordinary kernels that is none: its tokens follow from what each sequence has seen."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

ROWS = 16


def next_token(rows: Sequence[bytes], vocab: int) -> int:
    """The token behind residual rows of a sequence, each as its bytes."""
    return zlib.crc32(b"".join(rows)) % vocab


@dataclass
class FakeBaselineChain:
    """Takes what the compiled chain takes; a row that was never written shows as an error."""

    shape: dict[str, float]
    loopback: bool = False
    sequences: int = 1
    layers: dict[int, dict[str, int]] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)
    failure: str = ""

    def __post_init__(self) -> None:
        self.caches: list[dict[int, bytes]] = [{} for _ in range(self.sequences)]
        self.positions: list[int] = []
        self.graphs: list[str] = []
        if self.shape["ranks"] != 1 and not self.loopback:
            raise ValueError("the baseline chain cannot run this model: one rank at a time")

    def set_layer(self, layer: int, addresses: dict[str, int]) -> None:
        self.layers[layer] = addresses

    def set_head(self, lm_head: int, final_norm: int) -> None:
        self.log.append("head")

    def set_rope(self, address: int) -> None:
        self.log.append("rope")

    def capture(self, mode: str, layers: list[int], with_head: bool, with_entry: bool) -> int:
        assert sorted(self.layers) == layers
        self.log.append(f"capture {mode} {with_head} {with_entry}")
        self.graphs.append(mode)
        return len(self.graphs) - 1

    def set_position(self, position: int) -> None:
        self.positions.append(position)

    def time_graphs(self, graphs: list[int], rounds: int) -> list[list[float]]:
        """Half a ms with programmatic launch, one without; the first of two replays is slower."""
        self.log += [f"time {self.graphs[graph]}" for graph in graphs]
        assert self.residual
        return [[9.0, 0.5 if self.graphs[graph] == "pdl" else 1.0] * rounds for graph in graphs]

    @property
    def kernels_per_layer(self) -> int:
        return 17 if self.loopback else 15

    def set_rows(self, sequences: list[int], positions: list[int]) -> None:
        assert len(sequences) == len(positions) == ROWS
        self.rows = list(zip(sequences, positions, strict=True))

    def set_residual(self, residual: npt.NDArray[np.float32]) -> None:
        self.residual = [row.tobytes() for row in residual]

    def replay(self, graph: int) -> None:
        assert self.graphs[graph] == "pdl"
        if self.failure:
            raise RuntimeError(self.failure)
        self.log.append("replay")
        for (sequence, position), row in zip(self.rows, self.residual, strict=True):
            self.caches[sequence][position] = row

    def logits(self) -> npt.NDArray[np.float32]:
        vocab = int(self.shape["vocab"])
        logits = np.zeros((ROWS, vocab), dtype=np.float32)
        for row, (sequence, position) in enumerate(self.rows):
            seen = [self.caches[sequence][place] for place in range(position + 1)]
            logits[row, next_token(seen, vocab)] = 1
        return logits


def chain_maker(made: list[Any]) -> Any:
    """What stands for the compiled class; ``made`` gets what it makes."""

    def make(shape: dict[str, float], **options: Any) -> FakeBaselineChain:
        made.append(FakeBaselineChain(shape, **options))
        return made[-1]

    return make
