"""Verify passes and whole decode steps of a model on a device, recorded or not.

A pass is an ``entry`` launch (embedded tokens to the first layer's projections), one launch per layer, and a
``head`` launch. A whole step has the draft and its tree in front of a pass, and ``accept`` behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

import numpy as np
import numpy.typing as npt
import torch

import musetrace
from musetrace.errors import DeviceError, UsageError
from musetrace.job_bytes import LaunchBytes
from musetrace.muse.batch.generation import BatchGeneration, is_batch
from musetrace.muse.batch.opening import OpenedChain, open_chain
from musetrace.muse.config import MuseConfig
from musetrace.muse.cuda_device import CudaDevice
from musetrace.muse.device import TOKENS, LaunchTimeoutError
from musetrace.muse.generation import Generation
from musetrace.muse.job_bytes import ModelBytes
from musetrace.muse.opening import EngineOptions, open_model
from musetrace.muse.passes import Recording
from musetrace.muse.peer_device import PeerDevice
from musetrace.muse.reference import embed
from musetrace.muse.speculative.sampling import Sampling
from musetrace.muse.threads import one_torch_thread
from musetrace.muse.whole_steps import WholeSteps
from musetrace.step_output import output_of

if TYPE_CHECKING:
    from musetrace.record.recorder import Recorder
    from musetrace.record.source import StampSource

# How long a step may be held back for buffers to be drained.
_ROOM_TIMEOUT_S = 10.0

_Result = TypeVar("_Result")


class Engine:
    """A model on a device; ``plan`` has the launches of a pass, and ``steps`` runs whole steps where it can.

    Args:
        model: a preset's name or a configuration.
        options: fields of ``EngineOptions``: ``device`` (the CPU by default), ``tp``, ``blocks``...

    Raises:
        UsageError: no such model, or it cannot be run so.
        DeviceError: the device is not there, or too small.
    """

    def __init__(self, model: str | MuseConfig = "mini", **options: Any) -> None:
        self.options = EngineOptions(**options)
        opened = open_model(model, self.options)
        self.config, self.device, self.head = opened.config, opened.device, opened.head
        self._passes, self._facts = opened.passes, opened.facts
        self.plan = opened.passes.plan
        self.steps = opened.steps
        self._has_draft = False
        self._recording: Recording | None = None
        self._recorder: Recorder | None = None
        self._ran = False
        self._chain: OpenedChain | None = None

    def attach(self, recorder: Recorder, position: int | None = None) -> None:
        """Record every pass from now on; with a recorder that is off, nothing changes.

        Processes that share the model all do so, each with a recorder of the one run.

        Args:
            position: of the first token of every pass, where that is always the same: what attention then
                reads of the KV cache is known, and kept in the run.

        Raises:
            RecordError: the recorder cannot start.
        """
        if not recorder.active:
            return
        source = replace(self.stamp_source(recorder.stamps), job_bytes=self._job_bytes(position))
        if self.steps is not None and self._has_draft:
            self.steps.prepare(recorder.stamps)
        else:
            self._passes.prepare(recorder.stamps)
        self._recording, self._recorder = Recording(recorder.attach(source), recorder.stamps), recorder

    def stamp_source(self, stamps: str) -> StampSource:
        """What a recorder must know of this engine when its stamps are kept so."""
        model = self.config.to_json() | {"seed": self.options.seed}
        build = {"musetrace": musetrace.__version__, "stamps": stamps, "tp": self.device.tp}
        return self.device.stamp_source(stamps, model | self._facts.model, build | self._facts.build)

    def _job_bytes(self, position: int | None) -> tuple[LaunchBytes, ...]:
        packed = isinstance(self.device, CudaDevice)
        return ModelBytes(
            config=self.config,
            tp=self.device.tp,
            layers=sum(planned.device_kind == "layer" for planned in self.plan),
            blocks=self.device.blocks,
            packed=packed,
            stop4=str(self._facts.build.get("stop4", "gather")),
            position=position,
            pool=self._facts.model.get("expert_pool"),
            draft=None if self.steps is None else self.steps.draft,
        ).launches()

    def close(self) -> None:
        """Part from the other processes that share the model, which all do so; nothing runs afterwards.

        An engine that is alone needs no closing.
        """
        if isinstance(self.device, PeerDevice):
            self.device.close()

    def detach(self) -> None:
        """Run without a recorder from now on."""
        self._recording = self._recorder = None

    def verify(
        self, ids: npt.NDArray[np.int64], position: int, step: int | None = None
    ) -> npt.NDArray[np.float32]:
        """Run 16 tokens through the model.

        Args:
            ids: int64[16], at the positions from ``position`` on; their keys and values enter the cache.
            step: the number under which a recorder files the launches; None for a pass that is not recorded.

        Returns:
            Logits float32[16, vocab].

        Raises:
            UsageError: not 16 tokens, one outside the vocabulary, or a model without an embedding table.
            DeviceError: no room in the cache, or a wait inside a launch ran out of time.
        """
        return self.verify_residual(self.embedded(ids), position, step)

    def embedded(self, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        """The residual stream float32[16, hidden] of int64[16] token ids; raises as :meth:`verify`."""
        if ids.shape != (TOKENS,):
            raise UsageError(f"a verify pass takes {TOKENS} token ids, not an array of shape {ids.shape}")
        if self.head is None:
            raise UsageError(f"model {self.config.name} has no embedding table: it takes no token ids")
        with one_torch_thread():
            residual = embed(self.config, self.head, torch.from_numpy(ids))
        return np.asarray(residual.numpy())

    def verify_residual(
        self, residual: npt.NDArray[np.float32], position: int, step: int | None = None
    ) -> npt.NDArray[np.float32]:
        """As :meth:`verify`, for embedded tokens: float32[16, hidden].

        Returns:
            Logits float32[16, vocab]; of a slice, its part of them.
        """
        self.device.set_residual(residual)
        self._reporting(lambda: self._passes.run(position, self._recording, step))
        return self.device.logits()

    def whole_steps(self) -> WholeSteps:
        """What runs whole steps, with the draft's weights on the device.

        Raises:
            DeviceError: the device runs verify passes alone.
        """
        if self.steps is None:
            raise DeviceError(f"this device has no draft for model {self.config.name}")
        if not self._has_draft:
            self.steps.load()
            if self._recording is not None:
                self.steps.prepare(self._recording.stamps)
            self._has_draft = True
        return self.steps

    def decode_step(self, step: int | None = None) -> list[int]:
        """One whole step behind what the device has decoded so far. Returns the 1 to 16 tokens it decoded.

        Args:
            step: the number under which a recorder files the launches; None for one that is not recorded.

        Raises:
            DeviceError: no room in the cache, or a wait inside a launch ran out of time.
        """
        steps = self.whole_steps()
        return self._reporting(lambda: steps.run(self._recording, step))

    @overload
    def generate(
        self, prompt: Sequence[int], max_new_tokens: int, sampling: Sampling | None = None
    ) -> list[int]: ...

    @overload
    def generate(
        self, prompt: Sequence[Sequence[int]], max_new_tokens: int, sampling: Sampling | None = None
    ) -> list[list[int]]: ...

    def generate(
        self,
        prompt: Sequence[int] | Sequence[Sequence[int]],
        max_new_tokens: int,
        sampling: Sampling | None = None,
    ) -> list[int] | list[list[int]]:
        """The tokens that follow a prompt, or each of several.

        Greedy tokens are those of decoding one by one, to the bit; sampled ones those of sampling one by one
        with the same seed. See ``generation.Generation`` for more than the tokens.

        Several prompts run on the ordinary chain of kernels (``musetrace.muse.batch``), which has weights of
        its own, made at the first batch of that size. It sums in an order of its own: where two tokens are as
        good as equal it may choose the other one. It is not stamped; a recorder keeps a note of it.

        Args:
            prompt: token ids, at least one; or up to 16 such prompts.
            max_new_tokens: how many to make, at least one.
            sampling: None for greedy tokens.

        Raises:
            UsageError: an empty prompt, an id outside the vocabulary, or more tokens than the cache holds.
            DeviceError: the device runs verify passes alone, or a wait inside a launch ran out of time.
        """
        if is_batch(prompt):
            return self._generate_batch(cast(Sequence[Sequence[int]], prompt), max_new_tokens, sampling)
        return Generation(self, cast(Sequence[int], prompt), max_new_tokens, sampling).tokens()

    def _generate_batch(
        self, prompts: Sequence[Sequence[int]], max_new_tokens: int, sampling: Sampling | None
    ) -> list[list[int]]:
        if len(prompts) == 1:
            return [self.generate(prompts[0], max_new_tokens, sampling)]
        if self._chain is None or self._chain.chain.sequences != len(prompts):
            self._chain = None
            self._chain = open_chain(self.config, self.options, len(prompts))
        if self._recording is not None:
            text = f"{self._chain.note}, and none of its steps is in this run"
            self._recording.collector.report({"kernel": "", "text": text})
        samplings = [sampling] * len(prompts)
        return BatchGeneration(self._chain.chain, prompts, max_new_tokens, samplings).tokens()

    def _reporting(self, run: Callable[[], _Result]) -> _Result:
        """A run, whose wait report is kept where it is given up."""
        self._ran = False
        try:
            result = run()
        except LaunchTimeoutError as error:
            if self._recording is not None:
                self._recording.collector.report(error.report)
            raise
        self._ran = True
        return result

    def wait_for_room(self) -> None:
        """Between steps: hold back until the recorder can take a whole step, or for 10 s.

        Without it a step that comes too early loses launches, which are counted. Processes that share the
        model compare the clocks of their GPUs here, every few seconds.
        """
        if self._recorder is not None:
            self._recorder.compare_clocks(when_due=True)
        if self._recording is not None:
            launches = len(self._passes.plan if self.steps is None else self.steps.plan)
            self._recording.collector.wait_free(launches, _ROOM_TIMEOUT_S)

    def finish_step(self, step: int, begin_ns: int, end_ns: int, tokens: int) -> None:
        """Tell the recorder that a step is over: host times (ns) and how many tokens it decoded.

        It keeps a hash of the logits of the last pass, which is made here, outside of the step's time, and
        none of a pass that failed.
        """
        if self._recording is not None:
            made = output_of(self.device.logits() if self._ran else None)
            digest = "" if made is None else made.digest()
            self._recording.collector.step(step, begin_ns, end_ns, tokens, digest)
