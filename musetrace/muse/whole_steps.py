"""Whole decode steps on a device: draft, tree, verify, accept, without a number from the host in between."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from musetrace.errors import DeviceError
from musetrace.muse.device import FROM_STATE as FROM_STATE
from musetrace.muse.device import TOKENS, Device
from musetrace.muse.draft.config import DraftConfig
from musetrace.muse.launch_plan import PlannedLaunch, step_plan
from musetrace.muse.passes import EagerPasses, Passes, Recording
from musetrace.muse.speculative.sampling import Sampling, choose
from musetrace.muse.speculative.tree import TOP_K, Ids

GUESSES = {"tree": TOP_K, "chain": 1}
# Launches behind the verify pass.
_BEHIND = ("accept", "keep_kv")


class StepDevice(Device, Protocol):
    """A device that runs whole steps; ``CpuDevice`` has the meaning of each."""

    draft: DraftConfig | None

    def set_step(self, **step: Any) -> None:
        """What a step starts from."""

    def step(self, rank: int = 0) -> dict[str, Any]:
        """The state that the last launch left on a rank."""


class WholeSteps:
    """One sequence of tokens on a device.

    Args:
        device: with a draft.
        guesses: ``tree``, or ``chain``: one guess for each position.
        load: puts the draft's weights onto the device.
        plan: the device's launches of a step; as the CPU device has them by default.
        step: runs a step, of these launches; one launch after the other by default.
        joined: what passes are made by which other processes run too; as they are by default.

    Raises:
        DeviceError: the device has no draft.
    """

    def __init__(
        self,
        device: StepDevice,
        guesses: str,
        load: Callable[[], None],
        plan: tuple[PlannedLaunch, ...] | None = None,
        step: Passes | None = None,
        joined: Callable[[Passes], Passes] = lambda passes: passes,
    ) -> None:
        if device.draft is None:
            raise DeviceError("the device has no draft; it cannot run whole steps")
        self.draft, self._load = device.draft, load
        self.plan = step_plan(device.config, self.draft) if plan is None else plan
        self._device, self._top_k = device, GUESSES[guesses]
        verify = [one for one in self.plan if one.kind not in _BEHIND and not one.kind.startswith("draft_")]
        self._step = joined(EagerPasses(device, self.plan) if step is None else step)
        self._verify = joined(EagerPasses(device, verify[:-1]))
        self._head = joined(EagerPasses(device, verify[-1:]))
        self._context = joined(EagerPasses(device, self.plan[:1]))

    def load(self) -> None:
        """Put the draft's weights onto the device. Raises UsageError when they cannot be had."""
        self._load()

    def prepare(self, stamps: str) -> None:
        """Make what recorded steps need, behind :meth:`load`."""
        self._step.prepare(stamps)

    def prefill(self, prompt: Ids, sampling: Sampling | None) -> int:
        """Put a prompt into the caches, 16 tokens a pass, and return the token behind it: the first root.

        Args:
            prompt: int64 ids, at least one.
            sampling: of this and of all steps; None for greedy tokens.
        """
        drawn = {"temperature": 0.0, "seed": 0}
        if sampling is not None:
            drawn = {"temperature": sampling.temperature, "seed": sampling.seed}
        self._device.set_step(top_k=self._top_k, kept=0, **drawn)
        for start in range(0, len(prompt), TOKENS):
            self._prefill_pass(prompt[start : start + TOKENS], start)
            if start + TOKENS < len(prompt):
                self._context.run(FROM_STATE, None, None)
        self._head.run(FROM_STATE, None, None)
        last = (len(prompt) - 1) % TOKENS
        row = self._device.logits()[last : last + 1]
        root = int(choose(row, np.array([len(prompt)]), sampling)[0])
        self._device.set_step(tokens=_filled([root]))
        return root

    def begin(self, position: int) -> None:
        """Greedy steps behind caches that are filled otherwise, from token 0 on."""
        self._device.set_step(
            position=position, kept=0, tokens=_filled([]), top_k=self._top_k, temperature=0.0, seed=0
        )

    def _prefill_pass(self, tokens: Ids, start: int) -> None:
        """A chain of at most 16 tokens through the layers; rows beyond them are written over later."""
        parents = [0, *range(TOKENS - 1)]
        self._device.set_step(position=start, kept=0, tokens=_filled(tokens.tolist()), parents=parents)
        self._verify.run(FROM_STATE, None, None)
        kept = len(tokens)
        self._device.set_step(position=start + kept, kept=kept, path=_filled(list(range(kept))))

    def run(self, recording: Recording | None, step: int | None) -> list[int]:
        """One step. Returns the 1 to 16 tokens that it decoded; raises as :meth:`Passes.run` does."""
        self._step.run(FROM_STATE, recording, step)
        return [int(token) for token in self._device.step()["chosen"]]


def _filled(values: list[int]) -> list[int]:
    return values + [0] * (TOKENS - len(values))
