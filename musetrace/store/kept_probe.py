"""What `musetrace probe` measured, kept beside a run: its own file, so that a new index has it too."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

from musetrace.store import limits
from musetrace.store.payloads import PayloadError, decode_json
from musetrace.store.whole_file import write_atomically

PROBE_FILE = "probe.json"
# The only key of the manifest's section when the file cannot be read.
UNREADABLE = "unreadable"
_CRC_KEY = "crc32"


def read_kept(folder: Path) -> dict[str, Any] | None:
    """The facts kept in a run's folder; None when there are none, ``{"unreadable": why}`` if damaged."""
    try:
        content = (folder / PROBE_FILE).read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        return {UNREADABLE: f"{PROBE_FILE}: {error.strerror}"}
    try:
        kept = decode_json(content, limits.MAX_META_BYTES)
        if kept.pop(_CRC_KEY, None) != crc_of(kept):
            raise PayloadError("its checksum is wrong")
    except PayloadError as error:
        return {UNREADABLE: f"{PROBE_FILE}: {error}"}
    return kept


def write_kept(folder: Path, probed: dict[str, Any]) -> None:
    """Keep a document of facts, in place of an earlier one. Raises OSError."""
    write_atomically(folder / PROBE_FILE, json.dumps({_CRC_KEY: crc_of(probed), **probed}, indent=1) + "\n")


def crc_of(data: dict[str, Any]) -> int:
    """A checksum of a JSON object that does not depend on the order of its keys."""
    return zlib.crc32(json.dumps(data, sort_keys=True).encode())
