"""What the compiled programs of a GPU raise, as the errors of this package."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from musetrace.errors import DeviceError, MusetraceError, one_line

_MOST_CHARACTERS = 200


@contextmanager
def gpu_errors(model: str, refusal: type[MusetraceError] = DeviceError) -> Iterator[None]:
    """Errors of a compiled program, one line each: what it refuses as ``refusal``, else as DeviceError."""
    try:
        yield
    except ValueError as error:
        line = one_line(error, _MOST_CHARACTERS)
        raise refusal(f"the GPU cannot run model {model} so: {line}") from None
    except (RuntimeError, MemoryError) as error:
        line = one_line(error, _MOST_CHARACTERS)
        raise DeviceError(f"the GPU failed with model {model}: {line}; see nvidia-smi") from None
