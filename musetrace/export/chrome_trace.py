"""Chrome's trace JSON, as torch.profiler writes it: its kernels, and the same file with more events.

What stands in the file stays as it is, byte for byte; events are put behind the last one. ``ts`` and ``dur``
are microseconds from ``baseTimeNanoseconds``; here they are integers in ns, so that nothing is rounded.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from musetrace.errors import TraceFileError

_GZIP = b"\x1f\x8b"
_SPACE = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder(parse_float=Decimal)
_RETURN_TYPE_AND_SCOPE = re.compile(r".*(?:::|\s)")


@dataclass(frozen=True)
class TracedKernel:
    """A kernel on the GPU: ``name`` as the trace has it, times in ns on the trace's clock."""

    name: str
    begin_ns: int
    end_ns: int
    device: int | None


class ChromeTrace:
    """A trace that was read. ``base_ns`` is the time from which its ``ts`` count."""

    def __init__(self, path: Path) -> None:
        """Read it, gzipped or not. Raises TraceFileError."""
        self.path = path
        self._text = _read(path)
        try:
            self._fields, self._events, self._insert_at = _parse(self._text)
            self.base_ns = int(self._fields.get("baseTimeNanoseconds", 0))
        except (ValueError, TypeError, RecursionError) as error:
            raise TraceFileError(f"{path} is not a trace of torch.profiler: {error}") from None

    def kernels(self) -> list[TracedKernel]:
        """All kernels, in order of their begin. Raises TraceFileError for one without a time."""
        found = [
            self._kernel(event)
            for event in self._events
            if isinstance(event, dict) and event.get("ph") == "X" and event.get("cat") == "kernel"
        ]
        return sorted(found, key=lambda kernel: kernel.begin_ns)

    def free_pid(self) -> int:
        """The first of the numbers that no process of the trace has."""
        pids = [event.get("pid") for event in self._events if isinstance(event, dict)]
        return 1 + max((pid for pid in pids if isinstance(pid, int)), default=0)

    def write_with(self, events: Iterable[str], path: Path) -> int:
        """Write the trace with more events, each a JSON text; gzipped if the name says so.

        The file is there once it is whole. Returns how many events were added. Raises TraceFileError.
        """
        count = 0
        opened = gzip.open if path.suffix == ".gz" else open
        part = path.with_name(path.name + ".part")
        try:
            with opened(part, "wt", encoding="utf-8") as file:
                file.write(self._text[: self._insert_at])
                for count, event in enumerate(events, start=1):
                    file.write((",\n" if self._events or count > 1 else "\n") + event)
                file.write(self._text[self._insert_at :])
            part.replace(path)
        except OSError as error:
            raise TraceFileError(f"cannot write {path}: {error.strerror or error}") from None
        return count

    def _kernel(self, event: dict[str, Any]) -> TracedKernel:
        times, arguments = (event.get("ts"), event.get("dur")), event.get("args")
        if not all(isinstance(time, int | Decimal) for time in times):
            raise TraceFileError(f"{self.path}: kernel {event.get('name')} has no ts or no dur")
        ts, dur = (round(Decimal(time or 0) * 1000) for time in times)
        device = arguments.get("device") if isinstance(arguments, dict) else None
        begin_ns = self.base_ns + ts
        return TracedKernel(
            str(event.get("name")), begin_ns, begin_ns + dur, device if isinstance(device, int) else None
        )


def function_name(demangled: str) -> str:
    """``gemm`` of ``void (anonymous namespace)::gemm<4>(float const*, int)``."""
    without_arguments = re.split(r"[<(]", demangled.replace("(anonymous namespace)", ""), maxsplit=1)[0]
    return _RETURN_TYPE_AND_SCOPE.sub("", without_arguments.strip())


def microseconds(time_ns: int) -> str:
    """A time in ns as JSON in the trace's unit, exactly."""
    sign, time_ns = ("-" if time_ns < 0 else ""), abs(time_ns)
    return f"{sign}{time_ns // 1000}.{time_ns % 1000:03d}"


def _read(path: Path) -> str:
    try:
        data = path.read_bytes()
        return (gzip.decompress(data) if data.startswith(_GZIP) else data).decode("utf-8")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise TraceFileError(f"cannot read {path}: {reason}") from None


def _parse(text: str) -> tuple[dict[str, Any], list[Any], int]:
    """The fields beside the events, the events, and where the list of events ends. Raises ValueError."""
    at = _skip(text, 0)
    if text[at : at + 1] == "[":
        events, end = _DECODER.raw_decode(text, at)
        return {}, events, end - 1
    if text[at : at + 1] != "{":
        raise ValueError("it is neither an object nor an array")
    fields: dict[str, Any] = {}
    insert_at = None
    while text[at : at + 1] != "}":
        key, at = _DECODER.raw_decode(text, _skip(text, at + 1))
        at = _skip(text, at)
        if text[at : at + 1] != ":":
            raise ValueError(f"no value for {key!r}")
        fields[key], at = _DECODER.raw_decode(text, _skip(text, at + 1))
        if key == "traceEvents":
            insert_at = at - 1
        at = _skip(text, at)
        if text[at : at + 1] not in (",", "}"):
            raise ValueError(f"it ends behind {key!r}")
    events = fields.pop("traceEvents", None)
    if not isinstance(events, list) or insert_at is None:
        raise ValueError("it has no list of traceEvents")
    return fields, events, insert_at


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return at if match is None else match.end()
