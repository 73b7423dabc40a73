"""What recorded decode steps go on from: a text, or seeded random tokens."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from musetrace.errors import UsageError
from musetrace.muse.config import MuseConfig
from musetrace.muse.device import TOKENS
from musetrace.muse.tokenizer import FILE_NAME, Tokenizer

# A text to go on from; about 40 tokens of the sample's vocabulary (samples/train_mini).
DEFAULT_PROMPT = (
    "The for statement is used to iterate over the elements of a sequence (such as a string, tuple"
)
# Tokens of the synthetic prompt; longer than mini's sliding window, so that the window matters.
PROMPT_TOKENS = 96


@dataclass(frozen=True)
class Prompt:
    """What the steps go on from: a text where there is a tokenizer, else seeded random tokens."""

    ids: npt.NDArray[np.int64]
    text: str | None = None
    tokenizer: Tokenizer | None = None

    @classmethod
    def of(cls, config: MuseConfig, weights: str | None, text: str | None, seed: int) -> Prompt:
        """The prompt for a folder with weights; without a text, one that is long enough for any device.

        Raises:
            UsageError: a text without a tokenizer, of another vocabulary, or of no token.
        """
        folder = None if weights is None else Path(weights)
        if folder is None or not (folder / FILE_NAME).exists():
            if text is not None:
                raise UsageError(f"--prompt needs a tokenizer: --weights with a folder that has {FILE_NAME}")
            return cls(synthetic_prompt(config.vocab_size, seed))
        tokenizer = Tokenizer.load(folder)
        if tokenizer.vocab_size != config.vocab_size:
            raise UsageError(
                f"the tokenizer in {folder} is for {tokenizer.vocab_size} tokens, and model {config.name} "
                f"has {config.vocab_size}"
            )
        text = DEFAULT_PROMPT if text is None else text
        ids = np.array(tokenizer.encode(text), dtype=np.int64)
        if len(ids) < TOKENS:
            raise UsageError(f"--prompt has {len(ids)} tokens; give a text of {TOKENS} at least")
        return cls(ids, text, tokenizer)

    def says(self, tokens: list[int]) -> str | None:
        """The text of tokens, where it is known."""
        return None if self.tokenizer is None else self.tokenizer.decode(tokens)


def synthetic_prompt(vocab_size: int, seed: int) -> npt.NDArray[np.int64]:
    """Seeded random token ids, int64[PROMPT_TOKENS]."""
    return np.random.default_rng(seed).integers(vocab_size, size=PROMPT_TOKENS, dtype=np.int64)
