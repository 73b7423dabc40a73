"""What the steps of a measurement work on: other rows in each step of a turn, the same ones in each turn."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from musetrace.errors import UsageError
from musetrace.muse.cuda_device import CudaDevice
from musetrace.muse.decode import Decoder
from musetrace.muse.device import TOKENS
from musetrace.muse.engine import Engine
from musetrace.muse.prompt import PROMPT_TOKENS, synthetic_prompt
from musetrace.muse.slice_steps import fill_cache, random_rows


class StepInputs:
    """Verify passes at one position: behind a prompt, or behind a random context of a model without text.

    Keys and values of the verified tokens overwrite those of the step before, so that a step can be repeated
    bit for bit.

    Args:
        engine: whose cache is filled.
        context: positions in front of the step of a model that decodes no text; None for others.
        seed: of prompt, context and rows.

    Raises:
        UsageError: the engine's device cannot run the model.
    """

    def __init__(self, engine: Engine, context: int | None, seed: int) -> None:
        self._engine, self._seed = engine, seed
        self._rows: dict[int, npt.NDArray[np.float32]] = {}
        if context is None:
            Decoder(engine, synthetic_prompt(engine.config.vocab_size, seed))
            self.position = PROMPT_TOKENS
            return
        if not isinstance(engine.device, CudaDevice):
            raise UsageError(f"model {engine.config.name} runs on a GPU only; use --device cuda")
        fill_cache(engine.device, seed)
        self.position = context

    def rows(self, number: int) -> npt.NDArray[np.float32]:
        """The residual stream float32[16, hidden] that step ``number`` of every turn begins with."""
        if number not in self._rows:
            self._rows[number] = self._made(number)
        return self._rows[number]

    def _made(self, number: int) -> npt.NDArray[np.float32]:
        config = self._engine.config
        if self._engine.head is None:
            return random_rows(config, self._seed, number)
        rng = np.random.default_rng((abs(self._seed), number))
        return self._engine.embedded(rng.integers(config.vocab_size, size=TOKENS, dtype=np.int64))
