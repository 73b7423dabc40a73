"""The graphs of a whole step in turns, from what was asked for to a table."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from musetrace.analysis.certainty.bootstrap import Interval, bootstrap_median
from musetrace.errors import UsageError
from musetrace.muse.config import preset
from musetrace.muse.decode import checked_context
from musetrace.muse.engine import Engine
from musetrace.muse.opening import chosen_device, default_capacity
from musetrace.muse.prompt import PROMPT_TOKENS
from musetrace.overhead.built_in.whole_step.step_graphs import STAMPS, Replay, StepGraphs
from musetrace.record.conditions import Conditions, gpu_now
from musetrace.record.process_place import process_place

FORMAT = "musetrace whole step 1"
_ROUNDS = 10


@dataclass(frozen=True)
class WholeStepOptions:
    """What to time; ``device``, ``model``, ``tp``, ``context`` and ``seed`` are as in ``DecodeOptions``.

    A whole model has one rank by default, so that the chain can stand beside it. ``rounds`` of each graph
    twice, forward and backward; 10.
    """

    device: str = "auto"
    model: str = "mini"
    tp: int | None = None
    context: int | None = None
    seed: int = 0
    rounds: int | None = None


@dataclass(frozen=True)
class GraphTime:
    """Of one graph: time on the GPU, and the host's to queue it, ns; None where it is not known."""

    name: str
    device_ns: Interval
    queued_ns: Interval | None


@dataclass(frozen=True)
class WholeStep:
    """The table.

    Attributes:
        subject: what was timed, in JSON types.
        conditions: readings before and after, see ``conditions``.
        launches: of the step and its parts.
        kernels_of_chain: of a layer; None where no chain stands beside.
        beyond_ns: what a step takes beyond its draft and its verify pass, of replays of the same turn.
    """

    subject: dict[str, Any]
    conditions: dict[str, Any]
    launches: dict[str, int]
    kernels_of_chain: int | None
    times: tuple[GraphTime, ...]
    beyond_ns: Interval

    def to_json(self) -> dict[str, Any]:
        """A dict of plain JSON types; times in ns."""
        return {
            "format": FORMAT,
            "subject": self.subject,
            "conditions": self.conditions,
            "launches": self.launches,
            "kernels_of_a_chain_layer": self.kernels_of_chain,
            "graphs": [
                {
                    "name": time.name,
                    "device_ns": time.device_ns.to_json(),
                    "queued_ns": None if time.queued_ns is None else time.queued_ns.to_json(),
                }
                for time in self.times
            ],
            "step_beyond_draft_and_verify_ns": self.beyond_ns.to_json(),
        }


def measure_whole_step(
    options: WholeStepOptions, progress: Callable[[int, int], None] = lambda done, of: None
) -> WholeStep:
    """Replay all graphs in turn, forward and backward, each from the same state.

    Args:
        progress: called with (rounds done, rounds in all).

    Raises:
        UsageError: the options do not fit each other.
        DeviceError: the device cannot run it.
    """
    rounds = _ROUNDS if options.rounds is None else options.rounds
    if rounds < 1:
        raise UsageError(f"--rounds must be at least 1, not {rounds}")
    if process_place(os.environ) is not None:
        raise UsageError("overhead measures one process; start it without torchrun")
    engine, context = _opened(options)
    graphs = StepGraphs(engine, context, options.seed)
    conditions = Conditions(gpu_now)
    conditions.note()
    replays = _in_turn(graphs, rounds, progress)
    conditions.note()
    source = engine.stamp_source("off")
    subject = {
        "model": engine.config.name,
        "device": source.device,
        "build": source.build,
        "ranks": engine.device.ranks,
        "tp": engine.device.tp,
        "blocks": engine.device.blocks,
        "context": context,
        "rounds": rounds,
        "seed": options.seed,
    }
    return _table(graphs, replays, subject, conditions.noted, options.seed)


def _opened(options: WholeStepOptions) -> tuple[Engine, int]:
    config = preset(options.model)
    if chosen_device(config, options.device) == "cpu":
        raise UsageError(
            "whole steps are timed as CUDA graphs; on the CPU device record a run, and report has its parts"
        )
    is_slice = config.slice_tp is not None
    context = checked_context(config, options.context) if is_slice else None
    if options.context is not None and not is_slice:
        raise UsageError(
            f"--context is for a slice; model {config.name} stands behind {PROMPT_TOKENS} tokens"
        )
    engine = Engine(
        config,
        device="cuda",
        tp=options.tp if is_slice else options.tp or 1,
        seed=options.seed,
        capacity=default_capacity(config, context),
        launches="graph",
        guesses="tree",
    )
    return engine, PROMPT_TOKENS if context is None else context


def _in_turn(
    graphs: StepGraphs, rounds: int, progress: Callable[[int, int], None]
) -> dict[str, list[Replay]]:
    """Two replays of each graph a round, behind a round to warm up."""
    replays: dict[str, list[Replay]] = {name: [] for name in graphs.names}
    progress(0, rounds)
    for number in range(rounds + 1):
        for name in [*graphs.names, *reversed(graphs.names)]:
            replay = graphs.replay(name)
            if number:
                replays[name].append(replay)
        progress(number, rounds)
    return replays


def _table(
    graphs: StepGraphs,
    replays: dict[str, list[Replay]],
    subject: dict[str, Any],
    conditions: dict[str, Any],
    seed: int,
) -> WholeStep:
    device_ns = {name: np.array([one.device_ns for one in made]) for name, made in replays.items()}
    times = []
    for name, made in replays.items():
        queued = [one.queued_ns for one in made if one.queued_ns is not None]
        of_host = bootstrap_median(np.array(queued), seed) if queued else None
        times.append(GraphTime(name, bootstrap_median(device_ns[name], seed), of_host))
    beyond = device_ns[f"step, {STAMPS[0]}"] - device_ns["draft"] - device_ns["verify"]
    return WholeStep(
        subject,
        conditions,
        graphs.launches,
        graphs.kernels_of_chain,
        tuple(times),
        bootstrap_median(beyond, seed),
    )
