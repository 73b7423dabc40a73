"""How many bytes the jobs of a launch move, as a run keeps it.

Bytes are those of all blocks of one rank in one launch. Nothing measures them: they come from the author of a
kernel (``Recorder.attach``, ``NewJob``), or from a model's shapes (``musetrace.muse.job_bytes``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

# A launch of a second at 100 TB/s moves 1e14 bytes.
MAX_BYTES = 1 << 53
MAX_WHY_CHARS = 256


@dataclass(frozen=True)
class JobBytes:
    """Bytes of one job in one launch of a rank.

    ``low`` and ``high`` are equal to ``expected`` where the number is exact. Where it differs from launch to
    launch and only its distribution is known, they hold most launches, and ``basis`` says how it is known.
    ``late`` of them, at most, may be on their way when the job's span ends: copies that it has only issued.
    """

    expected: int
    low: int
    high: int
    late: int = 0
    basis: str = ""

    @classmethod
    def exact(cls, number: int, late: int = 0) -> JobBytes:
        """A number that is the same in every launch."""
        return cls(number, number, number, min(late, number))

    def to_json(self) -> int | list[Any]:
        """A number where it is exact and none is late, else [expected, low, high, late, basis]."""
        if self.low == self.expected == self.high and not self.late:
            return self.expected
        return [self.expected, self.low, self.high, self.late, self.basis]

    @classmethod
    def from_json(cls, data: Any) -> JobBytes:
        """Inverse of :meth:`to_json`. Raises ValueError or TypeError for anything else."""
        expected, low, high, late, basis = data if isinstance(data, list) else (data, data, data, 0, "")
        numbers = (low, expected, high, late)
        if any(isinstance(one, bool) or not isinstance(one, int) for one in numbers):
            raise ValueError("bytes are no integers")
        if not 0 <= low <= expected <= high <= MAX_BYTES or not high > 0 or not 0 <= late <= high:
            raise ValueError("bytes are out of range")
        if not isinstance(basis, str) or len(basis) > MAX_WHY_CHARS:
            raise ValueError("what bytes are known from is no text")
        return cls(expected, low, high, late, basis)


@dataclass(frozen=True)
class LaunchBytes:
    """Bytes of the jobs of a kind of launch, by name; of some of its layers where ``layers`` lists them.

    ``unknown`` says of jobs that move bytes why nobody knows how many.
    """

    kind: str
    layers: tuple[int, ...] | None = None
    jobs: Mapping[str, JobBytes] = field(default_factory=dict)
    unknown: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """A dict of plain JSON types."""
        return {
            "kind": self.kind,
            "layers": None if self.layers is None else list(self.layers),
            "jobs": {name: of.to_json() for name, of in self.jobs.items()},
            "unknown": dict(self.unknown),
        }

    @classmethod
    def from_json(cls, data: Any) -> LaunchBytes:
        """Inverse of :meth:`to_json`. Raises KeyError, TypeError, ValueError or AttributeError otherwise."""
        layers = data["layers"]
        unknown = {str(name): str(why)[:MAX_WHY_CHARS] for name, why in data["unknown"].items()}
        return cls(
            kind=str(data["kind"]),
            layers=None if layers is None else tuple(int(layer) for layer in layers),
            jobs={str(name): JobBytes.from_json(of) for name, of in data["jobs"].items()},
            unknown=unknown,
        )


@dataclass(frozen=True)
class RunBytes:
    """What is known of the bytes of a run's launches; ``note`` says why nothing is, where that is so."""

    launches: tuple[LaunchBytes, ...] = ()
    note: str = ""

    @classmethod
    def of_manifest(cls, manifest: Mapping[str, Any]) -> RunBytes:
        """What was declared when a run was recorded. Never raises: what cannot be read is a note."""
        data = manifest.get("job_bytes")
        if not data:
            return cls(
                note="the run does not say how many bytes its jobs move: attach(..., bytes={...}) does"
            )
        try:
            return cls(tuple(LaunchBytes.from_json(one) for one in data))
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
            return cls(note="what the run says of the bytes of its jobs cannot be read")

    def of(self, kind: str, layer: int) -> LaunchBytes | None:
        """Those of one launch; an entry for its layer comes before one for all layers."""
        of_kind = [one for one in self.launches if one.kind == kind]
        of_layer = [one for one in of_kind if one.layers is not None and layer in one.layers]
        return next(iter(of_layer or [one for one in of_kind if one.layers is None]), None)


def checked_bytes(given: object, jobs: Sequence[str], kernel: str) -> dict[str, int]:
    """Bytes by job that a user gives for a kernel.

    Raises:
        ValueError: one line that names the job that is wrong.
    """
    if not isinstance(given, Mapping):
        raise ValueError(
            f"bytes of kernel {kernel} is {given!r:.60}; give a dict of bytes by the name of a job"
        )
    for job, number in given.items():
        if job not in jobs:
            raise ValueError(
                f"bytes of kernel {kernel} are given for {job!r:.60}, which its job table does not have"
            )
        check_number(number, f"job {job} of kernel {kernel}")
    return {str(job): int(number) for job, number in given.items()}


def check_number(number: object, what: str) -> None:
    """Raises ValueError, naming ``what``, unless it can be the bytes of a launch."""
    if isinstance(number, bool) or not hasattr(number, "__index__") or not 1 <= int(number) <= MAX_BYTES:
        raise ValueError(
            f"{what} moves {number!r:.60} bytes; give a whole number of 1 to 2^53 for one launch"
        )
