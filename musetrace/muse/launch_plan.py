"""The launches of a verify pass, in their order."""

from __future__ import annotations

from dataclasses import dataclass

from musetrace.muse.config import MuseConfig
from musetrace.record.source import LaunchInfo


@dataclass(frozen=True)
class PlannedLaunch:
    """One launch: ``device_kind`` and ``device_layer`` are for the device, the rest is filed in a run."""

    device_kind: str
    device_layer: int
    number: int
    layer: int
    kind: str

    def info(self, step: int) -> LaunchInfo:
        """Under which numbers a recorder files it."""
        return LaunchInfo(step, self.number, self.layer, self.kind)


def launch_plan(config: MuseConfig, layers: int) -> tuple[PlannedLaunch, ...]:
    """``entry`` (embedded tokens to the first layer's projections), the first ``layers`` layers, ``head``."""
    entry = PlannedLaunch("entry", 0, 0, -1, "entry")
    body = [
        PlannedLaunch("layer", layer, layer + 1, layer, config.layer_kind(layer)) for layer in range(layers)
    ]
    return (entry, *body, PlannedLaunch("head", layers, layers + 1, layers, "head"))
