"""Sizes and offsets of packed weights: units, stages and row blocks.

A unit is 16 rows x stage K, a stage what one bulk copy brings (one unit of bf16, four of NVFP4), and a row
block (16 or 64 rows) has its K stages one after the other. Stage K is ``min(512, K)``; K is a multiple of it
and of 16 (NVFP4: 128). ``csrc/megakernel/fragment.h`` says the same to the device. Needs nothing but the
standard library.
"""

from __future__ import annotations

from dataclasses import dataclass

from musetrace.errors import UsageError
from musetrace.muse.config import ExpertFormat

TILE_ROWS = 16
FRAGMENT_K = 16
MAX_STAGE_K = 512
UNITS_OF_STAGE = {"bf16": 1, "nvfp4": 4}
# What one 16-byte load of a lane covers decides what K must be a multiple of.
K_MULTIPLE = {"bf16": 16, "nvfp4": 128}
BF16_BYTES = 2


@dataclass(frozen=True)
class StageLayout:
    """How a matrix of ``rows`` x ``k`` is packed.

    Raises:
        UsageError: the sizes do not fit; the message says how they must be.
    """

    format: ExpertFormat
    rows: int
    k: int

    def __post_init__(self) -> None:
        multiple = K_MULTIPLE[self.format]
        if self.rows < 1 or self.k < 1 or self.k % multiple or self.k % self.stage_k:
            raise UsageError(
                f"a {self.format} matrix of {self.rows} x {self.k} cannot be packed; K must be a multiple of "
                f"{multiple}, and of {MAX_STAGE_K} beyond that"
            )

    @property
    def stage_k(self) -> int:
        """K of a stage."""
        return min(MAX_STAGE_K, self.k)

    @property
    def k_stages(self) -> int:
        """Stages of a row block."""
        return self.k // self.stage_k

    @property
    def units(self) -> int:
        """Units of 16 rows in a stage."""
        return UNITS_OF_STAGE[self.format]

    @property
    def row_blocks(self) -> int:
        """Row blocks, the last one filled with zero rows."""
        return -(-self.rows // (TILE_ROWS * self.units))

    @property
    def padded_rows(self) -> int:
        """Rows with those that fill the last row block."""
        return self.row_blocks * TILE_ROWS * self.units

    @property
    def code_bytes(self) -> int:
        """Bytes of a unit before its scales."""
        values = TILE_ROWS * self.stage_k
        return values * BF16_BYTES if self.format == "bf16" else values // 2

    @property
    def unit_bytes(self) -> int:
        """Bytes of a unit."""
        scales = TILE_ROWS * self.stage_k // FRAGMENT_K if self.format == "nvfp4" else 0
        return self.code_bytes + scales

    @property
    def stage_bytes(self) -> int:
        """Bytes of a stage: 16,384 (bf16) or 18,432 (NVFP4) with K >= 512."""
        return self.unit_bytes * self.units

    @property
    def nbytes(self) -> int:
        """Bytes of the matrix."""
        return self.row_blocks * self.k_stages * self.stage_bytes

    def stage_offset(self, row_block: int, k_stage: int) -> int:
        """Byte offset of a stage."""
        return (row_block * self.k_stages + k_stage) * self.stage_bytes


def padded_width(columns: int) -> int:
    """K of a packed matrix of so many columns: whole stages, the last filled with zero columns."""
    return columns if columns < MAX_STAGE_K else -(-columns // MAX_STAGE_K) * MAX_STAGE_K
