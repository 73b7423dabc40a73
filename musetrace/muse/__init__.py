"""Muse Spark Open: the model whose decode step the built-in megakernel runs.

``config`` (the public dimensions), ``nvfp4`` (the 4-bit format of the experts), ``weights`` (synthetic,
seeded), ``reference`` (the decoder in plain torch, built from ``norms``, ``rope``, ``attention``, ``moe`` and
``cache``) and ``sharding`` (what one rank of a tensor-parallel group holds). ``draft`` is the model that
guesses, ``speculative`` the tree of its guesses and what is accepted of it, ``checkpoint`` reads weights.
``engine`` puts all of it on a device: ``Engine("mini").generate(token_ids, 20)``. Only ``config`` works
without torch, so only its names are re-exported here.
"""

from __future__ import annotations

from musetrace.muse.config import PRESETS, MuseConfig, preset

__all__ = ["PRESETS", "MuseConfig", "preset"]
