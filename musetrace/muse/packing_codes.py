"""NVFP4 re-encoded for the kernels: the bits of the codes in a lane's word, and the scale bytes.

The device turns a word into bf16 by masks and shifts; ``csrc/megakernel/fragment.h`` has the sequence, the
reasons for this order of bits and the proof that the products are exact. Needs numpy alone.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from musetrace.errors import UsageError

Bytes = NDArray[np.uint8]
Words = NDArray[np.uint32]

REGISTERS = 4
CODE_BITS = 4
CODES_OF_BYTE = 2
WORD_BITS = 32

# Bit of the word for (sign, e1, e0, m) of the even k, by register; 16 higher, modulo 32, for the odd k.
CODE_POSITIONS = ((15, 8, 7, 6), (9, 2, 1, 0), (19, 12, 11, 10), (13, 14, 5, 4))

SIGN_BITS = 0x88  # of the two codes of a byte

# The device's product is e2m1 * e4m3 * 2**PRODUCT_EXPONENT; the factor behind the accumulation undoes it.
PRODUCT_EXPONENT = -51

E4M3_ONES = 0x7F  # NaN, and above it the sign
E4M3_MIN_EXPONENT = -9
SCALE_EXPONENT_BIAS = 10
MANTISSA_BITS = 3


def words_of_bytes(registers: tuple[Bytes, Bytes, Bytes, Bytes]) -> Words:
    """The word of each lane.

    Args:
        registers: for a0 to a3 the byte with the two codes of that register, the even k in the low nibble;
            four uint8 arrays of one shape.
    """
    words = np.take(_BYTE_TO_WORD[0], registers[0])
    for table, codes in zip(_BYTE_TO_WORD[1:], registers[1:], strict=True):
        words |= np.take(table, codes)
    return words


def bytes_of_words(words: Words) -> tuple[Bytes, ...]:
    """Inverse of :func:`words_of_bytes`."""
    return tuple(
        _gathered(words, positions, 0) | _gathered(words, positions, 1) << np.uint8(CODE_BITS)
        for positions in CODE_POSITIONS
    )


def scale_bytes(scales: Bytes) -> Bytes:
    """E4m3 bit patterns to ``((exponent + 10) << 3) | mantissa``, subnormals normalised; 0 stays 0.

    Raises:
        UsageError: a scale is negative or not a number.
    """
    if scales.size and int(scales.max()) >= E4M3_ONES:
        raise UsageError("an NVFP4 block scale is negative or not a number; check the checkpoint")
    return np.take(_SCALE_BYTES, scales)


def scales_of_bytes(encoded: Bytes) -> Bytes:
    """Inverse of :func:`scale_bytes`.

    Raises:
        UsageError: a byte is none that it gives.
    """
    scales = np.take(_SCALES, encoded)
    if bool((scales == E4M3_ONES).any()):
        raise UsageError("packed weights have a scale byte that no scale gives; pack them again")
    return scales


def without_codes_of_zero(codes: Bytes, scales: Bytes) -> Bytes:
    """``codes`` with only their signs where the block's scale is 0, which has no scale byte of its own.

    Args:
        codes: uint8 [..., K / 2]; scales: uint8 [..., K / 16].
    """
    if bool(scales.all()):
        return codes
    mask = np.where(scales == 0, np.uint8(SIGN_BITS), np.uint8(0xFF))
    masks: Bytes = np.repeat(mask, codes.shape[-1] // scales.shape[-1], axis=-1)
    return codes & masks


def _gathered(words: Words, positions: tuple[int, ...], half: int) -> Bytes:
    codes = np.zeros(words.shape, np.uint32)
    for position in positions:
        shift = np.uint32((position + WORD_BITS // 2 * half) % WORD_BITS)
        codes = codes << np.uint32(1) | words >> shift & np.uint32(1)
    return codes.astype(np.uint8)


def _byte_table(positions: tuple[int, ...]) -> Words:
    byte = np.arange(256, dtype=np.uint32)
    table = np.zeros(256, np.uint32)
    for half in range(2):
        for index, position in enumerate(positions):
            bit = byte >> np.uint32(CODE_BITS * (half + 1) - 1 - index) & np.uint32(1)
            table |= bit << np.uint32((position + WORD_BITS // 2 * half) % WORD_BITS)
    return table


def _scale_byte(pattern: int) -> int:
    exponent, mantissa = pattern >> MANTISSA_BITS, pattern & 7
    if pattern == 0:
        return 0
    if exponent == 0:
        # mantissa * 2**-9: its top bit becomes the hidden one.
        exponent = mantissa.bit_length() - 1 + E4M3_MIN_EXPONENT
        mantissa = mantissa << (MANTISSA_BITS + 1 - mantissa.bit_length()) & 7
    else:
        exponent -= 7
    return exponent + SCALE_EXPONENT_BIAS << MANTISSA_BITS | mantissa


def _scale_tables() -> tuple[Bytes, Bytes]:
    encoded = np.array([_scale_byte(pattern) for pattern in range(E4M3_ONES)], np.uint8)
    inverse = np.full(256, E4M3_ONES, np.uint8)
    inverse[encoded] = np.arange(E4M3_ONES)
    return encoded, inverse


_BYTE_TO_WORD = tuple(_byte_table(positions) for positions in CODE_POSITIONS)
_SCALE_BYTES, _SCALES = _scale_tables()
