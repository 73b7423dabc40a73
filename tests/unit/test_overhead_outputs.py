"""Outputs of builds that differ in one bit: found, and named by build, step and element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import musetrace
from musetrace.errors import OutputError
from musetrace.step_output import output_of

ARRAY = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


def measured(make: Callable[[str], Any], rounds: int) -> musetrace.OverheadResult:
    return musetrace.overhead(make, rounds=rounds, warm_up=1, device="cpu")


def with_outputs(outputs: dict[str, list[Any]]) -> Callable[[str], Any]:
    """The n-th step of a build returns the n-th of its outputs, and the last one ever after."""

    def make(stamps: str) -> Callable[[], Any]:
        left = list(outputs.get(stamps, outputs["off"]))
        return lambda: left.pop(0) if len(left) > 1 else left[0]

    return make


def changed(array: np.ndarray[Any, Any], at: tuple[int, ...], value: float) -> np.ndarray[Any, Any]:
    other = array.copy()
    other[at] = value
    return other


@pytest.mark.parametrize(
    ("off", "other", "said"),
    [
        (
            ARRAY,
            changed(ARRAY, (1, 2, 3), 7.5),
            "element [1, 2, 3] is 7.5, not 23.0; 1 of 24 elements differ",
        ),
        # The same number, and other bits.
        (np.zeros(3), np.array([0.0, -0.0, -0.0]), "element [1] is -0.0, not 0.0; 2 of 3 elements differ"),
        (ARRAY, ARRAY.astype(np.float64), "it is float64 [2, 3, 4], not float32 [2, 3, 4]"),
        (ARRAY, ARRAY.reshape(6, 4), "it is float32 [6, 4], not float32 [2, 3, 4]"),
        (b"tokens", b"tokent", "element [5] is 116, not 115; 1 of 6 elements differ"),
        (b"tokens", b"token", "it is bytes [5], not bytes [6]"),
        (ARRAY, None, "it returned nothing"),
        (None, ARRAY, "it returned float32 [2, 3, 4] where nothing was returned before"),
        (np.float32(2), np.float32(3), "element [] is 3.0, not 2.0; 1 of 1 elements differ"),
    ],
    ids=str,
)
def test_the_first_difference_is_named(off: Any, other: Any, said: str) -> None:
    result = measured(with_outputs({"off": [off], "store": [off] * 4 + [other]}), rounds=2)
    assert not result.sound
    # One turn of warm-up; round 0 has two turns of the side, round 1 its fourth and fifth.
    assert result.turns.outputs.first_differences == {"store": f"round 1, step 0, against off: {said}"}


def test_a_not_a_number_equals_itself() -> None:
    assert measured(with_outputs({"off": [np.full(3, np.nan)]}), rounds=1).outputs_equal


def test_outputs_that_a_step_overwrites_are_copied_before() -> None:
    buffer = np.zeros(4)

    def make(stamps: str) -> Callable[[], Any]:
        def run() -> Any:
            buffer[:] = 1.0 if stamps == "store" else 0.0
            return buffer

        return run

    result = measured(make, rounds=1)
    assert list(result.turns.outputs.first_differences) == ["store"]


def test_steps_that_return_nothing_are_not_compared() -> None:
    result = measured(with_outputs({"off": [None]}), rounds=1)
    assert result.sound
    assert result.turns.outputs.compared == 0


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "int64", "bool", "float8_e4m3fn"])
def test_tensors_are_compared_by_their_bits(dtype: str) -> None:
    torch = pytest.importorskip("torch")
    values = torch.tensor([[1.0, 0.0], [1.0, 1.0]]).to(getattr(torch, dtype))
    other = values.clone()
    other[1, 0] = 0
    assert measured(with_outputs({"off": [values, values.clone()]}), rounds=1).outputs_equal
    result = measured(with_outputs({"off": [values], "register": [other.t().contiguous().t()]}), rounds=1)
    (said,) = result.turns.outputs.first_differences.values()
    assert "element [1, 0] is " in said
    assert said.endswith("1 of 4 elements differ")


def test_a_tensor_of_bfloat16_is_shown_by_its_bits() -> None:
    torch = pytest.importorskip("torch")
    output = output_of(torch.tensor([1.0, -2.0], dtype=torch.bfloat16))
    assert output is not None
    # 1.0 is sign 0, exponent 127; -2.0 is sign 1, exponent 128.
    assert (output.kind, output.value(0), output.value(1)) == ("bfloat16 [2]", "0x3f80", "0xc000")


@pytest.mark.parametrize("returned", ["text", 3, [1, 2], object(), np.array([object()])])
def test_an_output_of_another_type_is_refused(returned: object) -> None:
    with pytest.raises(OutputError, match="give a numpy array, a torch tensor, bytes, or None"):
        measured(with_outputs({"off": [returned]}), rounds=1)
