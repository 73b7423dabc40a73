"""Every limit of the formats in one place. A size read from a file is compared with these before its use."""

from __future__ import annotations

from musetrace import _core

MAX_CHUNK_BYTES: int = _core.abi.MAX_CHUNK_BYTES
MAX_META_BYTES = 4 << 20
MAX_JSON_BYTES = 64 << 10
# 8 M slots of 8 bytes: 31 x the 132 x 256 slots of an H200 layer launch.
MAX_STAMP_BYTES = 64 << 20
MAX_MANIFEST_BYTES = 64 << 20
# Of one Arrow message, and of an Arrow file (24 bytes for each step).
MAX_HEADER_BYTES = 1 << 20
MAX_FOOTER_BYTES = 64 << 20

# u16 columns of the store, and counts of them.
MAX_BLOCKS = (1 << 16) - 1
MAX_LAUNCHES_PER_STEP = (1 << 16) - 1
MAX_SM = (1 << 16) - 1
# A slot pair that no job uses becomes job id UNKNOWN_JOB_BASE + pair, so pairs and jobs share the u16 evenly.
UNKNOWN_JOB_BASE = 1 << 15
MAX_JOBS = UNKNOWN_JOB_BASE
MAX_SLOTS = 2 * UNKNOWN_JOB_BASE
# Kernels of one run, each with at least one pair.
MAX_KERNELS = UNKNOWN_JOB_BASE
MAX_WARPS = 255
NO_WARP = 255
MAX_ITERATION = (1 << 16) - 1

MAX_STEP = (1 << 32) - 1
MAX_TOKENS = (1 << 16) - 1
MAX_RANKS = 1 << 16
MAX_NAME_CHARS = 256
MAX_TEXT_CHARS = 4096
MAX_NOTES = 100
MAX_TIME_NS = (1 << 63) - 1

# Bytes that may be read while searching for the next whole chunk in a damaged file, per byte of the file and
# on top. A file made of magics alone would otherwise cost time that grows with the square of its size.
RESYNC_FACTOR = 4
RESYNC_BYTES = 64 << 20
