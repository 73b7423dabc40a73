"""The torch reference as the ordinary chain of the CPU device: one sequence after the other."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from musetrace.muse.batch.ordinary_chain import PassRows, check_sequences
from musetrace.muse.cache import KvCache
from musetrace.muse.reference import verify
from musetrace.muse.rounding import Rounding
from musetrace.muse.threads import one_torch_thread
from musetrace.muse.weights import ModelWeights


class ReferenceChain:
    """See :class:`OrdinaryChain`. It rounds where the device does, but takes sums in fp64.

    Args:
        model: the weights.
        tp: over how many ranks the device splits its sums.

    Raises:
        UsageError: the numbers do not fit the model.
    """

    def __init__(self, model: ModelWeights, *, sequences: int, capacity: int, tp: int) -> None:
        check_sequences(sequences)
        self.config, self.sequences, self.capacity = model.config, sequences, capacity
        self._model, self._tp = model, tp
        self._caches = [KvCache.empty(model.config, capacity) for _ in range(sequences)]

    def run(self, rows: PassRows) -> npt.NDArray[np.float32]:
        """See :meth:`OrdinaryChain.run`."""
        logits = np.empty((len(rows.ids), self.config.vocab_size), dtype=np.float32)
        with one_torch_thread():
            for sequence in np.unique(rows.sequences):
                own = rows.sequences == sequence
                ids, start = torch.from_numpy(rows.ids[own]), int(rows.positions[own][0])
                result = verify(self._model, ids, start, self._caches[sequence], Rounding.BF16, self._tp)
                logits[own] = result.logits.numpy()
        return logits
