"""What stamps cost, and that they change nothing: builds of one program in turns on one device.

This module stays light, because ``import musetrace`` imports it: the measurement is loaded when it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from musetrace.overhead.result import OverheadResult

__all__ = ["overhead"]


def overhead(
    make: Callable[[str], Any],
    *,
    rounds: int = 30,
    steps: int = 1,
    warm_up: int = 2,
    stamps: Sequence[str] = ("register", "store"),
    device: str = "auto",
    seed: int = 0,
) -> OverheadResult:
    """Measure what the stamps of a program cost, beside the same program without them.

    Args:
        make: called once with ``"off"`` and once with each name of ``stamps``; returns what runs one step of
            the program that stamps so, or (that, launches of a step), or a :class:`musetrace.TimedStep`. The
            step returns its output: a numpy array, a torch tensor, bytes, or None for an output that is not
            compared. A call of all of them is the same work. On a GPU that torch does not see, the step waits
            for its own end.
        rounds: in each, every side is run beside ``off`` in the order ABBA; fewer than 6 tell nothing.
        steps: back to back in each turn.
        warm_up: turns of each side before the first round.
        stamps: the ways of stamping.
        device: ``cuda`` times with CUDA events, ``cpu`` with the host's clock; ``auto``: with events when the
            program has used a GPU through torch.
        seed: of the bootstrap.

    Raises:
        UsageError: numbers or names that make no sense.
        DeviceError: no such device.
        OverheadError: the program failed, or returned something else.
    """
    from musetrace.overhead.measure import measure_program

    return measure_program(
        make, rounds=rounds, steps=steps, warm_up=warm_up, stamps=stamps, device=device, seed=seed
    )
