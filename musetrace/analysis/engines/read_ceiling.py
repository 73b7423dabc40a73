"""How fast the device can read its memory, as ``musetrace probe`` measured it and kept it with the run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_EXPERIMENT, _FACT, _UNIT = "stream", "rate", "TB/s"
_GB_OF_TB = 1000.0


@dataclass(frozen=True)
class ReadCeiling:
    """GB/s of all SMs together, None where not known; ``note`` says from where, or why not."""

    gb_s: float | None = None
    p10_gb_s: float | None = None
    p90_gb_s: float | None = None
    note: str = ""


def read_ceiling(manifest: Mapping[str, Any]) -> ReadCeiling:
    """The best median rate of the probe's ``stream`` experiment, by bytes in flight, with its tenths."""
    probed = manifest.get("probe")
    if not isinstance(probed, dict) or "experiments" not in probed:
        return ReadCeiling(
            note="no probe of the device is kept with the run: musetrace probe --keep RUN, on that device"
        )
    rates = [rate for rate in map(_rate, _facts(probed)) if rate is not None]
    if not rates:
        return ReadCeiling(note=f"the probe that is kept with the run has not measured {_EXPERIMENT}")
    best = max(rates)
    return ReadCeiling(*best[:3], note=f"musetrace probe, {_EXPERIMENT}, n {best[3]}")


def _facts(probed: Mapping[str, Any]) -> list[Any]:
    experiments = probed["experiments"]
    if not isinstance(experiments, list):
        return []
    of = [one for one in experiments if isinstance(one, dict) and one.get("name") == _EXPERIMENT]
    return [fact for one in of if isinstance(one.get("facts"), list) for fact in one["facts"]]


def _rate(fact: Any) -> tuple[float, float, float, int] | None:
    """Median, p10 and p90 in GB/s, and n; None for another fact."""
    if not isinstance(fact, dict) or (fact.get("name"), fact.get("unit")) != (_FACT, _UNIT):
        return None
    numbers = [fact.get(name) for name in ("median", "p10", "p90")]
    if not all(isinstance(one, int | float) and not isinstance(one, bool) and one > 0 for one in numbers):
        return None
    median, p10, p90 = (_GB_OF_TB * float(one) for one in numbers if one is not None)
    n = fact.get("n")
    return median, p10, p90, n if isinstance(n, int) else 0
