"""The compiled CUDA part; see csrc/bindings/cuda_module.cpp. There only when nvcc was found at build time."""

from typing import TypedDict

import numpy as np
import numpy.typing as npt

def device_count() -> int: ...
def stamp_probe(mode: str, blocks: int, epoch: int) -> npt.NDArray[np.uint8]: ...
def clock_reads(count: int) -> npt.NDArray[np.uint64]: ...
def packed_layout(format: str, k: int) -> dict[str, int]: ...
def extract_codes(words: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]: ...
def dequant_words(
    words: npt.NDArray[np.uint32], scales: npt.NDArray[np.uint32]
) -> npt.NDArray[np.uint16]: ...
def packed_product(
    format: str, packed: npt.NDArray[np.uint8], tokens: npt.NDArray[np.uint16]
) -> npt.NDArray[np.float32]: ...

class ExpertTiming(TypedDict):
    work: str
    move_registers: bool
    in_flight_bytes: int
    registers: int
    local_bytes: int
    samples: int
    us_p10: float
    us_p50: float
    us_p90: float
    tb_per_s: float

def expert_product(
    variant: tuple[str, bool, int],
    packed: npt.NDArray[np.uint8],
    tokens: npt.NDArray[np.uint16],
    blocks: int,
    repeats: int = 1,
    lost_stage: int | None = None,
    budget_ns: int = 1_000_000_000,
) -> tuple[npt.NDArray[np.uint32], bytes]: ...
def expert_times(
    variants: list[tuple[str, bool, int]], blocks: int, stages: int, launches: int, rounds: int
) -> list[ExpertTiming]: ...
