"""A program of the user's as the sides of a measurement: a function that makes a step that stamps so."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from musetrace.errors import DeviceError, OverheadError, UsageError
from musetrace.overhead.clocks import CudaStopwatch, HostStopwatch, Stopwatch
from musetrace.overhead.result import STEP
from musetrace.overhead.turns import StepDone
from musetrace.step_output import output_of

Run = Callable[[], Any]
Make = Callable[[str], Any]


@dataclass(frozen=True)
class TimedStep:
    """A step of a user's program.

    Attributes:
        run: does one step and returns its output: a numpy array, a torch tensor, bytes, or None for an output
            that is not compared. Keeps alive what it reads: a replayed CUDA graph holds no tensor.
        launches: of a step, or what says how many the last step made; None when that is of no interest.
        stream: the ``torch.cuda.Stream`` that the step is launched in; None for torch's current one.
        stamps: that the slowest blocks of the launches take in a step, and that all blocks take; None when
            that is not known.
    """

    run: Run
    launches: int | Callable[[], int] | None = None
    stream: Any = None
    stamps: tuple[int, int] | None = None


def load_function(target: str) -> Make:
    """The function that ``module:function`` or ``file.py:function`` names.

    Raises:
        UsageError: it is not of this form, or there is no such file, module or function.
        OverheadError: the module failed while it was loaded.
    """
    place, _, name = target.rpartition(":")
    if not place or not name:
        raise UsageError(f"--call {target} names no function: write module:function or file.py:function")
    try:
        module = _load_file(Path(place)) if place.endswith(".py") else _load_module(place)
    except (UsageError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise OverheadError(f"{place} failed while it was loaded: {_line(error)}") from error
    function = getattr(module, name, None)
    if not callable(function):
        raise UsageError(f"{place} has no function {name}; --call takes module:function or file.py:function")
    make: Make = function
    return make


def _load_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise UsageError(f"there is no file {path}; --call takes file.py:function or module:function")
    spec = importlib.util.spec_from_file_location(f"musetrace_program_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} is no Python file")
    # What stands beside the file can be imported, as when Python runs it.
    sys.path.insert(0, str(path.resolve().parent))
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _load_module(name: str) -> ModuleType:
    sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        raise UsageError(
            f"there is no module {error.name}; --call takes module:function or file.py:function"
        ) from error


def make_step(make: Make, stamps: str) -> TimedStep:
    """Have the user's function make the step of one way of stamping.

    Raises:
        OverheadError: it failed, or returned something else.
    """
    name = getattr(make, "__name__", "the function")
    try:
        returned = make(stamps)
    except (Exception, SystemExit) as error:
        raise OverheadError(
            f"{name}({stamps!r}) failed: {_line(error)}; mend it, or measure other ways of stamping"
        ) from error
    pair = returned if isinstance(returned, tuple) and len(returned) == 2 else (returned,)
    step = returned if isinstance(returned, TimedStep) else TimedStep(*pair)
    counts = step.launches is None or callable(step.launches) or _is_count(step.launches)
    if step.stamps is not None:
        counts = counts and isinstance(step.stamps, tuple) and len(step.stamps) == 2
        counts = counts and all(_is_count(number) for number in step.stamps)
    if not callable(step.run) or not counts:
        raise OverheadError(
            f"{name}({stamps!r}) returned {_short(returned)}; return a function that runs one step, or "
            "(function, launches of a step), or a musetrace.TimedStep"
        )
    return step


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


class ProgramSide:
    """A side that calls the user's step.

    Args:
        name: of the side.
        stamps: as which the step was made, for messages.
        made: the step.
        stopwatch: what times it.
    """

    def __init__(self, name: str, stamps: str, made: TimedStep, stopwatch: Stopwatch) -> None:
        self.name = name
        self._stamps, self._made, self._stopwatch = stamps, made, stopwatch

    def step(self, number: int) -> StepDone:
        """See :meth:`Side.step`. Raises OverheadError when the program fails or returns something else."""
        try:
            self._stopwatch.start()
            returned = self._made.run()
            self._stopwatch.stop()
            elapsed_ns = self._stopwatch.elapsed_ns()
            launches = self._made.launches
            made = launches() if callable(launches) else launches
        except (Exception, SystemExit) as error:
            raise OverheadError(f"the step made for {self._stamps!r} failed: {_line(error)}") from error
        if made is not None and not _is_count(made):
            raise OverheadError(
                f"the step made for {self._stamps!r} counts {_short(made)} launches, no number"
            )
        return StepDone({STEP: elapsed_ns}, output_of(returned), made)

    def rest(self) -> None:
        """See :meth:`Side.rest`: nothing, for a step that was timed has ended."""


def stopwatch_for(device: str, stream: Any = None) -> Stopwatch:
    """CUDA events or the host's clock.

    Args:
        device: ``cuda``, ``cpu``, or ``auto``: a GPU when the program has used one through torch.
        stream: that the steps are launched in.

    Raises:
        DeviceError: ``cuda`` without a GPU that torch can use.
        UsageError: no such device.
    """
    if device not in ("auto", "cpu", "cuda"):
        raise UsageError(f"no device is called {device!r}; choose auto, cpu or cuda")
    if device == "cuda":
        require_torch_cuda()
        return CudaStopwatch(stream)
    torch = sys.modules.get("torch")
    uses_gpu = torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized()
    return CudaStopwatch(stream) if device == "auto" and uses_gpu else HostStopwatch()


def require_torch_cuda() -> None:
    """Raises DeviceError when torch has no GPU to time on."""
    try:
        import torch
    except ModuleNotFoundError as error:
        raise DeviceError(
            "--device cuda needs torch for its events; install torch, or use --device cpu"
        ) from error
    if not torch.cuda.is_available():
        raise DeviceError("no CUDA device can be used; check the driver and nvidia-smi, or use --device cpu")


def _line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def _short(value: object) -> str:
    return " ".join(repr(value).split())[:80]
