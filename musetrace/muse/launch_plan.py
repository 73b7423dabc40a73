"""The launches of a verify pass and of a whole decode step, in their order."""

from __future__ import annotations

from dataclasses import dataclass, replace

from musetrace.muse.config import MuseConfig
from musetrace.muse.draft.config import DraftConfig
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


def step_plan(config: MuseConfig, draft: DraftConfig, layers: int | None = None) -> tuple[PlannedLaunch, ...]:
    """``draft_context``, a ``draft_layer`` each, ``draft_head``, ``draft_tree``, a verify pass, ``accept``.

    A draft layer is filed under its own number among the draft's. The pass is through the first ``layers``
    layers, or all.
    """
    kinds = [("draft_context", 0, -1)]
    kinds += [("draft_layer", layer, layer) for layer in range(draft.num_hidden_layers)]
    kinds += [("draft_head", 0, draft.num_hidden_layers), ("draft_tree", 0, -1)]
    guessing = [
        PlannedLaunch(kind, of_device, number, layer, kind)
        for number, (kind, of_device, layer) in enumerate(kinds)
    ]
    verify = [
        replace(planned, number=len(guessing) + planned.number)
        for planned in launch_plan(config, config.num_hidden_layers if layers is None else layers)
    ]
    return (*guessing, *verify, PlannedLaunch("accept", 0, len(guessing) + len(verify), -1, "accept"))


def gpu_step_plan(
    config: MuseConfig, draft: DraftConfig, layers: int | None = None
) -> tuple[PlannedLaunch, ...]:
    """A step's launches on a GPU, where embedding the tree and keeping the path's rows are launches too."""
    plan: list[PlannedLaunch] = []
    for planned in step_plan(config, draft, layers):
        if planned.kind == "entry":
            plan.append(PlannedLaunch("embed", 0, 0, -1, "embed"))
        plan.append(planned)
    plan.append(PlannedLaunch("keep_kv", 0, 0, -1, "keep_kv"))
    return tuple(replace(planned, number=number) for number, planned in enumerate(plan))
