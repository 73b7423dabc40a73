"""The chain of ordinary kernels on a GPU (``csrc/baseline``), with a row of each pass for each sequence."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from musetrace.errors import UsageError
from musetrace.muse.batch.ordinary_chain import PassRows, check_sequences
from musetrace.muse.config import MuseConfig
from musetrace.muse.cuda_errors import gpu_errors
from musetrace.muse.cuda_model import RankWeights
from musetrace.muse.cuda_weights import addresses, load_chain, rope_table
from musetrace.muse.device import shape_of
from musetrace.muse.reference import embed
from musetrace.muse.weights import HeadWeights


class CudaChain:
    """See :class:`OrdinaryChain`. A pass is a CUDA graph of all its kernels, with programmatic launch.

    Args:
        module: the compiled CUDA module, see ``cuda_requirements.require_gpu``.
        weights: of the one rank that there is.
        head: with the embedding table, on the host.
        blocks: how many the plan of a pass reckons with: the SMs.
        gpu: where the weights are.

    Raises:
        UsageError: the chain cannot run the model so.
        DeviceError: CUDA failed.
    """

    def __init__(
        self,
        module: ModuleType,
        config: MuseConfig,
        weights: RankWeights,
        head: HeadWeights,
        *,
        sequences: int,
        blocks: int,
        capacity: int,
        gpu: torch.device,
    ) -> None:
        check_sequences(sequences)
        self.config, self.sequences, self.capacity = config, sequences, capacity
        self._head = head
        self._tensors: list[dict[str, Tensor]] = []
        layers = config.num_hidden_layers
        with gpu_errors(config.name, UsageError):
            shape = shape_of(config, 1, blocks, capacity, layers)
            self._chain = module.BaselineChain(shape, sequences=sequences)
            load_chain(
                self._chain,
                config,
                (self._keep(weights.layer(0, layer)) for layer in range(layers)),
                self._keep(weights.head(0)),
                self._keep({"rope": rope_table(config, capacity, gpu)})["rope"],
            )
            # They were made in torch's stream and are read in another.
            torch.cuda.synchronize()
            self._graph = self._chain.capture("pdl", [*range(layers)], True, True)

    def _keep(self, tensors: dict[str, Tensor]) -> dict[str, int]:
        """The addresses of tensors, which live as long as the chain."""
        self._tensors.append(tensors)
        return addresses(tensors)

    def run(self, rows: PassRows) -> npt.NDArray[np.float32]:
        """See :meth:`OrdinaryChain.run`."""
        whole = rows.filled()
        residual = embed(self.config, self._head, torch.from_numpy(whole.ids)).numpy()
        with gpu_errors(self.config.name, UsageError):
            self._chain.set_rows(whole.sequences.tolist(), whole.positions.tolist())
            self._chain.set_residual(residual)
            self._chain.replay(self._graph)
            return np.asarray(self._chain.logits())[: len(rows.ids)]
