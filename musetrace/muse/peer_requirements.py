"""What must hold between the processes that share a model, before anything is launched."""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from musetrace.errors import DeviceError, UsageError
from musetrace.muse.config import MuseConfig
from musetrace.muse.process_group import ProcessGroup
from musetrace.record.process_place import ProcessPlace

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class RankShare:
    """The ranks that a process holds: ``held`` of them from ``first_rank`` on."""

    first_rank: int
    held: int


def rank_share(place: ProcessPlace | None, config: MuseConfig, tp: int) -> RankShare:
    """The ranks of a process: all of them when it is alone, else an equal part.

    Raises:
        UsageError: ``tp`` ranks cannot be dealt to so many processes, or the model is a slice.
    """
    if config.slice_tp is not None and place is not None:
        raise UsageError(
            f"model {config.name} is one rank that plays back what its peers would send; start it without "
            "torchrun, or use a whole model"
        )
    if place is None:
        return RankShare(0, 1 if config.slice_tp is not None else tp)
    if tp % place.processes:
        raise UsageError(
            f"{tp} ranks cannot be dealt to {place.processes} processes evenly; use another --tp or "
            "--nproc-per-node"
        )
    held = tp // place.processes
    return RankShare(place.process * held, held)


@dataclass(frozen=True)
class ProcessFacts:
    """What a process tells the others: host, UUID of its GPU, and settings that must be the same in all."""

    host: str
    gpu: str
    settings: dict[str, Any]


def own_facts(settings: dict[str, Any]) -> ProcessFacts:
    """Of this process and its current GPU. ``settings`` are JSON values by name."""
    host = _BOOT_ID.read_text().strip() if _BOOT_ID.exists() else platform.node()
    return ProcessFacts(host, _uuid(torch.cuda.current_device()), settings)


def require_agreement(group: ProcessGroup, facts: ProcessFacts) -> None:
    """Tell the others, and check what they tell: the same model, and GPUs of one host that reach each other.

    Raises:
        UsageError: settings differ; the message names the first that does.
        DeviceError: the GPUs cannot exchange, or a process is gone.
    """
    told = group.exchange_any(json.dumps(asdict(facts)).encode())
    everybody = [ProcessFacts(**json.loads(text)) for text in told]
    _require_same_settings(everybody)
    for process, other in enumerate(everybody):
        if process != group.place.process:
            _require_reach(process, other, facts)


def _require_same_settings(everybody: Sequence[ProcessFacts]) -> None:
    first = everybody[0].settings
    for process, other in enumerate(everybody):
        for name in first.keys() | other.settings.keys():
            mine, theirs = first.get(name), other.settings.get(name)
            if mine != theirs:
                raise UsageError(
                    f"the processes do not agree on {name}: process 0 has {mine!r}, process {process} "
                    f"{theirs!r}; start all with the same options"
                )


def _require_reach(process: int, other: ProcessFacts, mine: ProcessFacts) -> None:
    if other.host != mine.host:
        raise DeviceError(
            f"process {process} runs on another host; ranks exchange through the memory of one host's GPUs: "
            "start all processes there"
        )
    if other.gpu == mine.gpu:
        raise DeviceError(
            f"process {process} has the same GPU ({mine.gpu}), and every process needs its own: start as "
            "many as there are GPUs, each can hold several ranks"
        )
    own = torch.cuda.current_device()
    peers = [index for index in range(torch.cuda.device_count()) if _uuid(index) == other.gpu]
    if not peers:
        raise DeviceError(
            f"the GPU of process {process} ({other.gpu}) cannot be seen from here; let all processes see all "
            "GPUs (CUDA_VISIBLE_DEVICES)"
        )
    if not torch.cuda.can_device_access_peer(own, peers[0]):
        raise DeviceError(
            f"GPU {own} has no peer access to GPU {peers[0]} of process {process}; see nvidia-smi topo "
            "-p2p r, or use virtual ranks on one GPU"
        )


def _uuid(device: int) -> str:
    return str(torch.cuda.get_device_properties(device).uuid)
