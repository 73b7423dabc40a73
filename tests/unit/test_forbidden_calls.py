"""House rules that can be read off the source: no code in data, size limits, docstrings of public names."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

# Row D5 of the fault table: a file from somebody else must not be able to run code, nor kill the reader by
# being cut while it is mapped.
MODULES = {"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "marshal", "shelve", "joblib", "mmap"}
CALLS = {"eval", "exec", "torch.load", "yaml.load", "yaml.unsafe_load", "os.system", "os.popen"}
CALLS_OF_ANY_MODULE = {"memmap", "memory_map"}
LOADERS = {"import_module", "__import__"}
TRUE_ARGUMENTS = {"allow_pickle", "shell", "mmap", "memory_map"}
SET_ARGUMENTS = {"mmap_mode"}

PYTHON_FILE_LINES = 400
FUNCTION_LINES = 60
NATIVE_FILE_LINES = 350
NATIVE_SUFFIXES = {".h", ".cuh", ".cpp", ".cu"}


def python_files(repository: Path, *folders: str) -> list[Path]:
    """The Python files below some folders of the clone, each once even where a folder is linked."""
    return sorted({file.resolve() for folder in folders for file in (repository / folder).rglob("*.py")})


def forbidden(source: str) -> Iterator[tuple[int, str]]:
    """(line, what) of everything in a source that row D5 forbids."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Call):
            yield from ((node.lineno, what) for what in forbidden_in_call(node))
            continue
        else:
            continue
        yield from ((node.lineno, f"import {name}") for name in names if name.split(".")[0] in MODULES)
        yield from ((node.lineno, f"import {name}") for name in names if name in CALLS)


def forbidden_in_call(call: ast.Call) -> Iterator[str]:
    """What is wrong with a call: its name, or one of its arguments."""
    name = ast.unparse(call.func)
    last = name.rpartition(".")[2]
    if name in CALLS or last in CALLS_OF_ANY_MODULE:
        yield f"{name}()"
    loaded = call.args[0] if last in LOADERS and call.args else None
    if isinstance(loaded, ast.Constant) and str(loaded.value).split(".")[0] in MODULES:
        yield f"{name}({loaded.value!r})"
    for argument in call.keywords:
        is_false = isinstance(argument.value, ast.Constant) and not argument.value.value
        if argument.arg in TRUE_ARGUMENTS | SET_ARGUMENTS and not is_false:
            yield f"{argument.arg}={ast.unparse(argument.value)}"


def test_no_code_in_data_and_no_mapped_files(repository: Path) -> None:
    files = python_files(repository, "musetrace", "dashboard")
    assert len(files) > 10
    found = [
        f"{file.relative_to(repository)}:{line} {what}"
        for file in files
        for line, what in forbidden(file.read_text(encoding="utf-8"))
    ]
    assert found == []


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from marshal import loads",
        "import os.path, shelve",
        "from torch import load",
        "eval('1')",
        "exec(code)",
        "torch.load(path)",
        "yaml.load(text)",
        "numpy.load(path, allow_pickle=True)",
        "numpy.load(path, allow_pickle=flag)",
        "numpy.load(path, mmap_mode='r')",
        "subprocess.run(line, shell=True)",
        "numpy.memmap(path)",
        "pa.memory_map(path)",
        "pq.read_table(path, memory_map=True)",
        "importlib.import_module('pickle')",
        "__import__('mmap')",
    ],
)
def test_the_checker_finds_what_is_forbidden(source: str) -> None:
    assert len(list(forbidden(source))) == 1


@pytest.mark.parametrize(
    "source",
    [
        "model.eval()",
        "json.load(file)",
        "load(path, allow_pickle=False)",
        "import picklelike",
        "re.compile(x)",
    ],
)
def test_the_checker_leaves_the_rest_alone(source: str) -> None:
    assert list(forbidden(source)) == []


# Both may return before the GPU has done it, and no stream of ours waits: megakernel/host_writes.h does.
_UNWAITED = re.compile(r"\bcudaMemset\s*\(|\bcudaMemcpy\s*\([^;]*?cudaMemcpyHostToDevice")


def test_what_the_host_writes_is_there_before_a_launch(repository: Path) -> None:
    assert len(_UNWAITED.findall("cudaMemset(a, 0, 1); cudaMemcpy(a,\n b, 1, cudaMemcpyHostToDevice)")) == 2
    others = "cudaMemsetAsync(a, 0, 1, s); cudaMemcpy(a, b, 1, cudaMemcpyDeviceToHost);"
    assert _UNWAITED.search(others) is None
    sources = [file for file in (repository / "csrc").rglob("*") if file.suffix in NATIVE_SUFFIXES]
    found = {file.name for file in sources if _UNWAITED.search(file.read_text(encoding="utf-8"))}
    assert found == {"host_writes.h"}


def line_count(file: Path) -> int:
    return len(file.read_text(encoding="utf-8").splitlines())


def test_no_file_outgrows_its_limit(repository: Path) -> None:
    python = python_files(repository, "musetrace", "dashboard", "tests", "samples", ".ci")
    native = [
        file
        for folder in ("csrc", "tests", "samples")
        for file in sorted((repository / folder).rglob("*"))
        if file.suffix in NATIVE_SUFFIXES
    ]
    assert python
    assert native
    too_long = [file for file in python if line_count(file) > PYTHON_FILE_LINES]
    too_long += [file for file in native if line_count(file) > NATIVE_FILE_LINES]
    assert [f"{file.relative_to(repository)}: {line_count(file)} lines" for file in too_long] == []


def functions(source: str) -> Iterator[tuple[str, int]]:
    """(name, lines) of every function, nested ones and methods among them."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, (node.end_lineno or node.lineno) - node.lineno + 1


def test_no_function_outgrows_its_limit(repository: Path) -> None:
    assert list(functions("def f():\n" + "    pass\n" * 60)) == [("f", FUNCTION_LINES + 1)]
    found = [
        f"{file.relative_to(repository)}: {name} has {lines} lines"
        for file in python_files(repository, "musetrace", "dashboard", "tests", "samples", ".ci")
        for name, lines in functions(file.read_text(encoding="utf-8"))
        if lines > FUNCTION_LINES
    ]
    assert found == []


def undocumented(source: str) -> list[str]:
    """Public functions, classes and methods without a docstring; the module itself as ``<module>``."""

    def visit(body: list[ast.stmt], prefix: str) -> Iterator[str]:
        for node in body:
            if isinstance(node, ast.If | ast.Try):
                yield from visit(node.body, prefix)
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                continue
            if node.name.startswith("_"):
                continue
            decorators = {ast.unparse(decorator) for decorator in node.decorator_list}
            inherits = any(name.endswith(("override", "overload", ".setter")) for name in decorators)
            if ast.get_docstring(node) is None and not inherits:
                yield prefix + node.name
            if isinstance(node, ast.ClassDef):
                yield from visit(node.body, f"{prefix}{node.name}.")

    module = ast.parse(source)
    return ([] if ast.get_docstring(module) else ["<module>"]) + list(visit(module.body, ""))


def test_every_public_name_has_a_docstring(repository: Path) -> None:
    found = [
        f"{file.relative_to(repository)}: {name}"
        for file in python_files(repository, "musetrace", "dashboard")
        for name in undocumented(file.read_text(encoding="utf-8"))
    ]
    assert found == []


def test_the_docstring_checker_looks_into_classes() -> None:
    source = (
        '"""Module."""\nclass A:\n    """A."""\n    def f(self): ...\n    def _g(self): ...\ndef h(): ...'
    )
    assert undocumented(source) == ["A.f", "h"]
    assert undocumented("x = 1") == ["<module>"]
