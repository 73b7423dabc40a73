"""Text to tokens of a small vocabulary and back: pairs of bytes, merged in the order of their learning.

Tokens 0 to 255 are bytes, those behind them the merges. What is left of the vocabulary stands for no text:
the last token is the draft's mask, the one before it the end of a text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from musetrace.errors import UsageError

FILE_NAME = "tokenizer.json"
BYTES = 256
# A word with the space in front of it, a digit, signs, or white space; no merge goes beyond one.
PIECES = re.compile(rb" ?[A-Za-z]+| ?[0-9]| ?[^\sA-Za-z0-9]+|\s+")
_MAX_FILE_BYTES = 10_000_000
# Tokens without text: mask and end.
_SPECIAL = 2

Pair = tuple[int, int]


class Tokenizer:
    """A vocabulary of bytes and merges.

    Args:
        merges: pairs of tokens; merge i makes token 256 + i.
        vocab_size: of the model.

    Raises:
        UsageError: a merge is of tokens that do not come before it, or there are too many.
    """

    def __init__(self, merges: Sequence[Pair], vocab_size: int) -> None:
        if len(merges) > vocab_size - BYTES - _SPECIAL:
            raise UsageError(f"{len(merges)} merges do not fit a vocabulary of {vocab_size} tokens")
        self.merges, self.vocab_size = tuple(merges), vocab_size
        self.end_id, self.mask_id = vocab_size - 2, vocab_size - 1
        self._rank = {pair: rank for rank, pair in enumerate(self.merges)}
        self._bytes = [bytes([value]) for value in range(BYTES)]
        for rank, (first, second) in enumerate(self.merges):
            if not (0 <= first < BYTES + rank and 0 <= second < BYTES + rank):
                raise UsageError(f"merge {rank} of the tokenizer is of tokens that do not come before it")
            self._bytes.append(self._bytes[first] + self._bytes[second])
        self._piece_ids = lru_cache(maxsize=100_000)(self._encode_piece)

    def encode(self, text: str) -> list[int]:
        """The tokens of a text."""
        return [token for piece in PIECES.findall(text.encode()) for token in self._piece_ids(piece)]

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens. Those without text are left out; bytes that are no UTF-8 become U+FFFD."""
        joined = b"".join(self._bytes[token] for token in tokens if 0 <= token < len(self._bytes))
        return joined.decode(errors="replace")

    def save(self, folder: Path) -> None:
        """Write ``tokenizer.json``."""
        document = {"vocab_size": self.vocab_size, "merges": [list(pair) for pair in self.merges]}
        (folder / FILE_NAME).write_text(json.dumps(document), encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> Tokenizer:
        """Inverse of :meth:`save`. Raises UsageError when the file is not there, or is something else."""
        path = folder / FILE_NAME
        try:
            if path.stat().st_size > _MAX_FILE_BYTES:
                raise ValueError
            document = json.loads(path.read_text(encoding="utf-8"))
            merges = [(int(first), int(second)) for first, second in document["merges"]]
            vocab_size = int(document["vocab_size"])
        except OSError as error:
            raise UsageError(f"{path} cannot be read: {error.strerror or error}") from None
        except (ValueError, KeyError, TypeError, RecursionError):
            raise UsageError(f"{path} is no tokenizer: it has no vocab_size and merges") from None
        return cls(merges, vocab_size)

    def _encode_piece(self, piece: bytes) -> tuple[int, ...]:
        """The earliest merge first, wherever it applies."""
        tokens = list(piece)
        while len(tokens) > 1:
            pairs = list(zip(tokens, tokens[1:], strict=False))
            best = min(pairs, key=lambda pair: self._rank.get(pair, len(self._rank)))
            if best not in self._rank:
                break
            tokens = merged(tokens, best, BYTES + self._rank[best])
        return tuple(tokens)


def merged(tokens: Sequence[int], pair: Pair, token: int) -> list[int]:
    """The tokens with each occurrence of a pair, from the left, replaced by one token."""
    made: list[int] = []
    at = 0
    while at < len(tokens):
        if tuple(tokens[at : at + 2]) == pair:
            made.append(token)
            at += 2
        else:
            made.append(tokens[at])
            at += 1
    return made
