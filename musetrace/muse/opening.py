"""From what was asked for to a model on a device that can run it, or one line that says why not."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch

import musetrace
from musetrace.errors import UsageError
from musetrace.muse import cpu_device, cuda_device
from musetrace.muse.checkpoint.draft import read_draft
from musetrace.muse.checkpoint.shares import CheckpointShares
from musetrace.muse.config import DEFAULT_CONTEXT, PRESETS, MuseConfig, preset
from musetrace.muse.cuda_memory import memory_need
from musetrace.muse.cuda_model import RandomRanks, UploadedShares
from musetrace.muse.cuda_requirements import gpu_is_usable, require_gpu, require_memory
from musetrace.muse.device import TOKENS, Device
from musetrace.muse.draft.config import DRAFTS, DraftConfig, draft_of
from musetrace.muse.draft.weights import DraftWeights, synthesize_draft
from musetrace.muse.graph_pass import GraphPasses, WholeStepPasses
from musetrace.muse.joint_passes import JointPasses
from musetrace.muse.launch_plan import gpu_step_plan, launch_plan
from musetrace.muse.passes import EagerPasses, Passes
from musetrace.muse.peer_device import PeerDevice
from musetrace.muse.peer_requirements import own_facts, rank_share, require_agreement
from musetrace.muse.process_group import ProcessGroup
from musetrace.muse.sharding import RankShares, WholeShares
from musetrace.muse.slice_weights import DEFAULT_POOL
from musetrace.muse.threads import one_torch_thread
from musetrace.muse.weights import HeadWeights, synthesize
from musetrace.muse.whole_steps import WholeSteps
from musetrace.record.process_place import process_place

# Beyond this a step of the CPU device takes minutes.
LARGEST_HIDDEN_ON_CPU = 2048
DEFAULT_TP = 2
# The kernel takes at most 16 query heads of a rank.
FULL_WIDTH_TP = 8
DEFAULT_CPU_BLOCKS = 2
# Of a whole model, whose own limit may be a million positions.
MOST_POSITIONS = 8192
_CAPACITY_MULTIPLE = 32
_CHOICES = {
    "stop4": ("sumsq", "gather"),
    "launches": ("eager", "graph"),
    "guesses": ("tree", "chain", "none"),
}


@dataclass(frozen=True)
class EngineOptions:
    """How a model is to run; None leaves the choice to the device and the model.

    Attributes:
        device: ``cpu``, ``cuda``, or ``auto``: a GPU that can be used, else the CPU.
        tp: ranks that share the model (2, at full width 8; for a slice its own number).
        blocks: blocks of a rank (2 on the CPU; on a GPU the SMs shared out among the ranks).
        seed: of the weights.
        capacity: positions in the KV cache (the model's own limit up to 8192; of one that decodes no text a
            context and 16 more).
        budget_ns: of a wait inside a launch.
        layers: run the first so many only; GPU.
        stop4: ``sumsq`` or ``gather``, see ``CudaDevice``; GPU.
        launches: ``graph`` (a step is one CUDA graph, drained at its end) or ``eager`` (each launch is
            drained when it has ended: a program that dies loses less). ``eager`` for verify passes of a model
            that decodes text, else ``graph``; GPU.
        guesses: ``tree`` or ``chain``: what whole steps verify of the draft's guesses; ``none`` for a device
            that runs verify passes alone. ``tree`` where whole steps can be run: a draft is known, and all
            layers run; else ``none``.
        draft: the draft's configuration (the preset's own).
        checkpoint: a folder with the weights under their public names, and those of the draft in its folder
            ``draft``; None for synthetic ones, which are random and made on the GPU where the model is too
            large for the host. A slice reads its own rank's part.
    """

    device: str = "cpu"
    tp: int | None = None
    blocks: int | None = None
    seed: int = 0
    capacity: int | None = None
    budget_ns: int | None = None
    layers: int | None = None
    stop4: str | None = None
    launches: str | None = None
    guesses: str | None = None
    draft: DraftConfig | None = None
    checkpoint: str | Path | None = None


@dataclass(frozen=True)
class Facts:
    """What a run says of its model and build beside the configuration."""

    model: dict[str, Any] = field(default_factory=dict)
    build: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class OpenedModel:
    """A model that is ready to run.

    ``head`` is None where the host has no embedding; ``steps`` where the device runs verify passes alone.
    """

    config: MuseConfig
    device: Device
    passes: Passes
    head: HeadWeights | None
    facts: Facts
    steps: WholeSteps | None = None


def open_model(model: str | MuseConfig, options: EngineOptions) -> OpenedModel:
    """Make the weights of a model, and a device that holds them.

    Under ``torchrun`` with several processes, all of them open the same model, and each holds its part of the
    ranks on a GPU of its own.

    Raises:
        UsageError: no such model, or it cannot be run so.
        DeviceError: the device is not there, or too small.
    """
    config = preset(model) if isinstance(model, str) else model
    device = chosen_device(config, options.device)
    tp = _default_tp(config) if options.tp is None else options.tp
    config.validate(tp)
    _check(options)
    check_capacity(config, options.capacity)
    return _on_gpu(config, tp, options) if device == "cuda" else _on_cpu(config, tp, options)


def chosen_device(config: MuseConfig, device: str) -> str:
    """``cpu`` or ``cuda``; ``auto`` is a GPU that can be used, and always one for a model that needs it."""
    if device not in ("auto", "cpu", "cuda"):
        raise UsageError(f"no device is called {device!r}; choose auto, cpu or cuda")
    if device != "auto":
        return device
    return "cuda" if _too_large_for_cpu(config) or gpu_is_usable() else "cpu"


def decodes_text(config: MuseConfig, checkpoint: str | Path | None) -> bool:
    """Whether steps go on from token ids: not those of a slice, nor of a model too large for the host.

    The weights of the latter two are random, and made on the GPU, unless a checkpoint has them; a checkpoint
    makes a whole model decode.
    """
    return config.slice_tp is None and not (checkpoint is None and _too_large_for_cpu(config))


def _made_on_gpu(config: MuseConfig, options: EngineOptions) -> bool:
    return options.checkpoint is None and not decodes_text(config, None)


def _default_tp(config: MuseConfig) -> int:
    return config.slice_tp or (FULL_WIDTH_TP if _too_large_for_cpu(config) else DEFAULT_TP)


def _check(options: EngineOptions) -> None:
    """Refuse what no device can do. Raises UsageError."""
    for name in ("blocks", "capacity", "budget_ns"):
        value = getattr(options, name)
        if value is not None and not 1 <= value < 1 << 63:
            raise UsageError(f"{name} must be at least 1, not {value}")
    for name, choices in _CHOICES.items():
        value = getattr(options, name)
        if value is not None and value not in choices:
            told = f"{', '.join(choices[:-1])} or {choices[-1]}"
            raise UsageError(f"{name} is {told}, not {value!r}")


def check_capacity(config: MuseConfig, capacity: int | None) -> None:
    """Raises UsageError for a KV cache that no step fits, or with more positions than the model has."""
    most = config.max_position_embeddings
    if capacity is not None and not TOKENS <= capacity <= most:
        raise UsageError(f"model {config.name} takes a capacity of {TOKENS} to {most}, not {capacity}")


def _too_large_for_cpu(config: MuseConfig) -> bool:
    return config.hidden_size > LARGEST_HIDDEN_ON_CPU


def require_cpu_size(config: MuseConfig) -> None:
    """Raises UsageError for a model that takes minutes a step on the CPU."""
    if _too_large_for_cpu(config):
        raise UsageError(f"model {config.name} is too large for the CPU device; use --model mini")


def _on_cpu(config: MuseConfig, tp: int, options: EngineOptions) -> OpenedModel:
    if (place := process_place(os.environ)) is not None:
        raise UsageError(
            f"the CPU device holds all ranks in one process, and there are {place.processes}; start it "
            "without torchrun, or use --device cuda on a host with a GPU for each"
        )
    require_cpu_size(config)
    for name in ("layers", "stop4", "launches"):
        if getattr(options, name) is not None:
            raise UsageError(
                f"{name} {getattr(options, name)} is for the GPU; leave it out, or use --device cuda"
            )
    shares = shares_of(config, options)
    draft = None if options.guesses == "none" else _known_draft(config, options)
    device = cpu_device.CpuDevice(
        shares,
        tp=tp,
        blocks=DEFAULT_CPU_BLOCKS if options.blocks is None else options.blocks,
        capacity=options.capacity or default_capacity(config, None),
        budget_ns=options.budget_ns or cpu_device.DEFAULT_BUDGET_NS,
        draft=draft,
    )
    passes = EagerPasses(device, launch_plan(config, config.num_hidden_layers))
    guesses, steps = "none", None
    if draft is not None:
        guesses = options.guesses or "tree"
        steps = WholeSteps(device, guesses, partial(_load_draft, device, draft, options))
    facts = Facts(weights_fact(options), {"guesses": guesses})
    return OpenedModel(config, device, passes, shares.host_head, facts, steps)


def _known_draft(config: MuseConfig, options: EngineOptions) -> DraftConfig | None:
    """The draft that was asked for, or a preset's own."""
    return options.draft or (DRAFTS.get(config.name) if PRESETS.get(config.name) == config else None)


def shares_of(config: MuseConfig, options: EngineOptions) -> RankShares:
    """Where the weights of a model come from that the host can hold, or read part by part.

    Raises:
        UsageError: the checkpoint is not one of the model.
    """
    if options.checkpoint is not None:
        return CheckpointShares(Path(options.checkpoint), config)
    with one_torch_thread():
        return WholeShares(synthesize(config, options.seed))


def draft_weights(draft: DraftConfig, options: EngineOptions) -> DraftWeights:
    """The weights of a draft, of a checkpoint or synthetic."""
    if options.checkpoint is not None:
        return read_draft(Path(options.checkpoint) / "draft", draft)
    with one_torch_thread():
        return synthesize_draft(draft, options.seed)


def weights_fact(options: EngineOptions) -> dict[str, str]:
    """What a run says of its weights."""
    return {"weights": "synthetic" if options.checkpoint is None else "checkpoint"}


def _on_gpu(config: MuseConfig, tp: int, options: EngineOptions) -> OpenedModel:
    place = process_place(os.environ)
    draft = _draft_on_gpu(config, options)
    share = rank_share(place, config, tp)
    module = require_gpu(place)
    layers = _checked_layers(config, options.layers)
    context = None if decodes_text(config, options.checkpoint) else DEFAULT_CONTEXT
    capacity = options.capacity or default_capacity(config, context)
    require_memory(memory_need(config, tp, share.held, layers, capacity, draft), config.name)
    sms = torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count
    numbers: dict[str, Any] = {
        "tp": tp,
        "blocks": max(1, sms // share.held) if options.blocks is None else options.blocks,
        "capacity": capacity,
        "layers": layers,
        "stop4": options.stop4 or "sumsq",
        "budget_ns": options.budget_ns or cuda_device.DEFAULT_BUDGET_NS,
    }
    text_alone = decodes_text(config, options.checkpoint) and draft is None
    launches = options.launches or ("eager" if text_alone else "graph")
    guesses = "none" if draft is None else options.guesses or "tree"
    device: cuda_device.CudaDevice
    if place is None:
        device = cuda_device.CudaDevice(module, config, draft=draft, **numbers)
        head = _load(device, options)
        passes = _passes(device, layers, launches)
    else:
        told = {"seed": options.seed, "musetrace": musetrace.__version__, **weights_fact(options)}
        drafts = {"guesses": guesses, "draft": None if draft is None else draft.to_json()}
        settings = config.to_json() | numbers | told | drafts
        with ProcessGroup(place) as group:
            require_agreement(group, own_facts(settings))
            device = PeerDevice(module, config, group, share, draft=draft, **numbers)
            head = _load(device, options)
            device.connect()
        passes = JointPasses(device, _passes(device, layers, launches))
    build: dict[str, Any] = {"stop4": numbers["stop4"], "launches": launches, "guesses": guesses}
    if draft is not None and layers < config.num_hidden_layers:
        build["draft_target_layers"] = list(draft.target_layer_ids)
    facts = _facts(config, layers, build, options)
    steps = None if draft is None else _steps_on_gpu(device, draft, guesses, options, launches)
    return OpenedModel(config, device, passes, head, facts, steps)


def _draft_on_gpu(config: MuseConfig, options: EngineOptions) -> DraftConfig | None:
    """The draft of whole steps; None for verify passes alone. Raises UsageError."""
    layers = config.num_hidden_layers
    whole = options.layers in (None, layers)
    if options.guesses is None:
        return _known_draft(config, options) if whole else None
    if options.guesses == "none":
        return None
    draft = options.draft or draft_of(config)
    if whole:
        return draft
    if not _made_on_gpu(config, options):
        raise UsageError(f"whole steps need all {layers} layers; leave layers out, or guesses")
    return draft.within(_checked_layers(config, options.layers))


def _steps_on_gpu(
    device: cuda_device.CudaDevice, draft: DraftConfig, guesses: str, options: EngineOptions, launches: str
) -> WholeSteps:
    load: Callable[[], None] = partial(_load_draft, device, draft, options)
    if _made_on_gpu(device.config, options):
        load = partial(device.load_random_draft, options.seed)
    plan = gpu_step_plan(device.config, draft, device.layers)
    step = WholeStepPasses(device, plan) if launches == "graph" else EagerPasses(device, plan)
    if isinstance(device, PeerDevice):
        return WholeSteps(
            device, guesses, partial(device.start_together, load), plan, step, partial(JointPasses, device)
        )
    return WholeSteps(device, guesses, load, plan, step)


def _load_draft(
    device: cpu_device.CpuDevice | cuda_device.CudaDevice, draft: DraftConfig, options: EngineOptions
) -> None:
    device.load_draft(draft_weights(draft, options))


def _load(device: cuda_device.CudaDevice, options: EngineOptions) -> HeadWeights | None:
    """Give the ranks of a device their weights. Returns the head of a model that decodes text."""
    config = device.config
    if _made_on_gpu(config, options):
        device.load(RandomRanks(config, device.tp, options.seed, device.gpu))
        return None
    shares = shares_of(config, options)
    device.load(UploadedShares(shares, device.tp, device.gpu))
    return shares.host_head if config.slice_tp is None else None


def _passes(device: cuda_device.CudaDevice, layers: int, launches: str) -> Passes:
    plan = launch_plan(device.config, layers)
    return GraphPasses(device, plan) if launches == "graph" else EagerPasses(device, plan)


def _checked_layers(config: MuseConfig, layers: int | None) -> int:
    if layers is None:
        return config.num_hidden_layers
    if not 1 <= layers <= config.num_hidden_layers:
        raise UsageError(
            f"model {config.name} has {config.num_hidden_layers} layers; it cannot run {layers} of them"
        )
    return layers


def default_capacity(config: MuseConfig, context: int | None) -> int:
    """Positions of the KV cache: a step behind ``context``; without it the model's own limit, or 8192."""
    if context is None:
        return min(config.max_position_embeddings, MOST_POSITIONS)
    return -(-(context + TOKENS) // _CAPACITY_MULTIPLE) * _CAPACITY_MULTIPLE


def _facts(config: MuseConfig, layers: int, build: dict[str, Any], options: EngineOptions) -> Facts:
    model: dict[str, Any] = {"layers_run": layers, **weights_fact(options)}
    if not decodes_text(config, options.checkpoint):
        verifies_alone = build["guesses"] == "none"
        model["input"] = "random residual" if verifies_alone else "own tokens behind a random context"
    if config.slice_tp is not None:
        model["loopback"] = True
    if _made_on_gpu(config, options):
        model["expert_pool"] = DEFAULT_POOL
    return Facts(model, build)
