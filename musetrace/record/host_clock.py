"""Which host clock this process reads: two processes with the same answer share ``CLOCK_MONOTONIC``."""

from __future__ import annotations

from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_TIME_NAMESPACE = Path("/proc/self/ns/time")


def boot_id() -> str | None:
    """What tells this run of the host's kernel from all others; None where the system does not say."""
    try:
        return _BOOT_ID.read_text("ascii").strip()
    except (OSError, ValueError):
        return None


def host_clock() -> str | None:
    """The boot of the host, and the time namespace when there are such: it has an offset of its own."""
    booted = boot_id()
    if booted is None:
        return None
    try:
        return f"{booted} {_TIME_NAMESPACE.readlink()}"
    except OSError:
        return booted
