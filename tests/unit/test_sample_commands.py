"""What the READMEs of the samples say to type exists, without a GPU."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from musetrace.cli.verbs import VERBS
from tests.sample_commands import commands

NEEDS = {
    "your_own_kernel": ["torch"],
    "triton_kernel": ["torch", "triton"],
    "torch_profiler": ["torch"],
    "train_mini": ["torch"],
}
OPTION = re.compile(r"(?<= )--?[a-z][a-z-]*")


def if_installed(sample: str) -> Any:
    missing = [module for module in NEEDS[sample] if find_spec(module) is None]
    reason = f"without {', '.join(missing)}"
    return pytest.param(sample, marks=pytest.mark.skipif(bool(missing), reason=reason))


installed_samples = pytest.mark.parametrize("sample", [if_installed(sample) for sample in NEEDS])


def run(program: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(program), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@installed_samples
def test_every_program_and_option_exists(repository: Path, sample: str) -> None:
    folder = repository / "samples" / sample
    lines = [line for line in commands(folder / "README.md") if line.startswith("python ")]
    assert len(lines) >= 2
    for program in {line.split()[1] for line in lines}:
        options = {option for line in lines for option in OPTION.findall(line) if line.split()[1] == program}
        told = run(folder / program, "--help")
        assert told.returncode == 0, told.stderr
        assert {option for option in options if not re.search(rf"{option}\b", told.stdout)} == set()


@pytest.mark.parametrize("sample", NEEDS)
def test_every_verb_exists(repository: Path, sample: str) -> None:
    lines = commands(repository / "samples" / sample / "README.md")
    verbs = {line.split()[1] for line in lines if line.startswith("musetrace ")}
    assert verbs
    assert verbs <= set(VERBS)


@installed_samples
def test_without_a_gpu_a_sample_says_so_in_one_line(repository: Path, sample: str) -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    folder = repository / "samples" / sample
    (program,) = {line.split()[1] for line in commands(folder / "README.md") if line.startswith("python ")}
    done = run(folder / program)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "torch finds no CUDA device\n")
