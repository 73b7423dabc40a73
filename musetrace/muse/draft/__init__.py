"""The draft model: guesses 15 tokens in one pass from hidden states of the target model.

``config`` (the dimensions), ``weights`` (synthetic, seeded), ``reference`` (the draft in plain torch, with
the exact shapes, positions, masks and cache rows) and ``sharding`` (what one rank holds). Only ``config``
works without torch.

On a device a draft pass is eight launches: ``draft_context`` (fc, all-reduce, norm, context k and v of all
layers; the first layer's q, k, v of the embedded rows), one ``draft_layer`` each (attention, o_proj,
all-reduce, MLP, all-reduce, the next layer's q, k, v), ``draft_head`` (norm, the target's lm_head), and
``draft_tree`` (the best tokens of each row, the tree). The all-reduces are those of the target's layers; the
features of the MLP stay on their rank.
"""

from __future__ import annotations

from musetrace.muse.draft.config import DraftConfig, draft_of

__all__ = ["DraftConfig", "draft_of"]
