"""What a batch needs of a chain of kernels: passes whose rows belong to several sequences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from musetrace.errors import UsageError
from musetrace.muse.config import MuseConfig
from musetrace.muse.device import TOKENS
from musetrace.muse.speculative.tree import Ids

# A pass has so many rows, and a step needs one for each sequence.
MOST_SEQUENCES = TOKENS


@dataclass(frozen=True)
class PassRows:
    """The tokens of a pass, 1 to 16.

    Those of one sequence stand at positions that follow each other, behind all that went into its cache.

    Attributes:
        ids, sequences, positions: int64[n]: the token, whose it is, and where it stands there.
    """

    ids: Ids
    sequences: Ids
    positions: Ids

    def filled(self) -> PassRows:
        """As many rows as a pass has: the last one again, which writes what it wrote and routes as it did."""
        places = np.minimum(np.arange(TOKENS), len(self.ids) - 1)
        return PassRows(self.ids[places], self.sequences[places], self.positions[places])


class OrdinaryChain(Protocol):
    """A model with a KV cache of ``capacity`` positions for each of 2 to 16 ``sequences``."""

    config: MuseConfig
    sequences: int
    capacity: int

    def run(self, rows: PassRows) -> npt.NDArray[np.float32]:
        """A pass, whose keys and values enter the caches. Returns logits float32[n, vocab].

        Raises:
            DeviceError: the device failed.
        """


def check_sequences(sequences: int) -> None:
    """Raises UsageError for a number of sequences that no pass has rows for."""
    if not 2 <= sequences <= MOST_SEQUENCES:
        raise UsageError(
            f"a batch has 2 to {MOST_SEQUENCES} sequences, a row of the pass each, not {sequences}; decode "
            "the others in another batch"
        )
