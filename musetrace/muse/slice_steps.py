"""Steps of a model that decodes no text: a slice, or ranks of random weights that were made on the GPU.

Each step verifies 16 random residual rows at the same positions, behind a context of random keys and values,
so that every step does the same work; routing differs with the rows. Whole steps guess and verify tokens of
their own there, which are no text either.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from musetrace.errors import UsageError
from musetrace.muse.config import MuseConfig
from musetrace.muse.cuda_device import CudaDevice
from musetrace.muse.device import TOKENS
from musetrace.muse.engine import Engine

# Both copies of the exchange, and the graph for each of them, have run once.
_WARM_UP_PASSES = 2

# What else is drawn by a seed and a step's number comes from fewer or smaller numbers.
_CACHE, _DRAFT_CACHE = 1 << 30, (1 << 30) + 1


class SliceSteps:
    """Steps at a fixed position.

    Args:
        engine: of such a model.
        context: positions in front of the verified ones.
        seed: of keys, values and residual rows.

    Raises:
        UsageError: the engine's device cannot run the model.
    """

    def __init__(self, engine: Engine, context: int, seed: int) -> None:
        if not isinstance(engine.device, CudaDevice):
            raise UsageError(f"model {engine.config.name} runs on a GPU only; use --device cuda")
        self._engine, self._context, self._seed = engine, context, seed
        fill_cache(engine.device, seed)
        for turn in range(_WARM_UP_PASSES):
            engine.verify_residual(random_rows(engine.config, seed, turn), context)

    def step(self, step: int) -> int:
        """One verify pass. Returns the tokens that it decoded: 0, for the input is no text."""
        rows = random_rows(self._engine.config, self._seed, step)
        self._engine.verify_residual(rows, self._context, step)
        return 0


class SliceWholeSteps:
    """Whole steps at a fixed position: the draft guesses, and a verify pass accepts some of it.

    A slice's tokens are of its own part of the vocabulary. Arguments are those of ``SliceSteps``.

    Raises:
        UsageError: the engine's device cannot run the model.
    """

    def __init__(self, engine: Engine, context: int, seed: int) -> None:
        if not isinstance(engine.device, CudaDevice):
            raise UsageError(f"model {engine.config.name} runs on a GPU only; use --device cuda")
        self._engine, self._device, self._context = engine, engine.device, context
        engine.whole_steps().begin(context)
        fill_cache(engine.device, seed)
        fill_draft_cache(engine.device, seed)
        for _ in range(_WARM_UP_PASSES):
            self._device.set_step(position=context)
            engine.decode_step()

    def step(self, step: int) -> int:
        """One whole step. Returns the tokens that it decoded: 0, for they are no text."""
        self._device.set_step(position=self._context)
        self._engine.decode_step(step)
        return 0


def random_rows(config: MuseConfig, seed: int, step: int) -> npt.NDArray[np.float32]:
    """Normed random rows float32[16, hidden], other ones in each step."""
    rng = np.random.default_rng((abs(seed), step))
    rows = rng.standard_normal((TOKENS, config.hidden_size), dtype=np.float32)
    normed: npt.NDArray[np.float32] = rows / np.sqrt((rows**2).mean(axis=1, keepdims=True))
    return normed


def fill_cache(device: CudaDevice, seed: int) -> None:
    """Random keys and values at all positions of all layers: a rank's own, in whichever process it is."""
    config = device.config
    shape = (config.num_key_value_heads // device.tp, device.capacity, config.head_dim)
    for rank in range(device.ranks):
        for layer in range(device.layers):
            place = (device.first_rank + rank, layer)
            device.set_kv(rank, layer, *_keys_and_values(shape, seed, _CACHE, *place))


def fill_draft_cache(device: CudaDevice, seed: int) -> None:
    """The same of the draft, where there is one."""
    if device.draft is None:
        return
    heads = device.draft.num_key_value_heads // device.tp
    shape = (heads, device.capacity, device.draft.head_dim)
    for rank in range(device.ranks):
        for layer in range(device.draft.num_hidden_layers):
            place = (device.first_rank + rank, layer)
            device.set_draft_kv(rank, layer, *_keys_and_values(shape, seed, _DRAFT_CACHE, *place))


def _keys_and_values(
    shape: tuple[int, ...], seed: int, *place: int
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    rng = np.random.default_rng((abs(seed), *place))
    k, v = (rng.standard_normal(shape, dtype=np.float32) for _ in range(2))
    return k, v
