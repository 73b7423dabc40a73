"""Who may import whom: the layers of the package, and what works without torch, dash and plotly."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

DRAWING = ("dash", "plotly")
FIGURES = "musetrace.figures"
PAGES_WITH_FIGURES = {
    "musetrace.cli.report.as_html",
    "musetrace.cli.report.html_figures",
    "musetrace.cli.report.pictures",
    "musetrace.probe.plot",
}
TORCH_FREE = ("store", "analysis", "record", "export", "cli", "overhead", "probe", "wording")
NEEDS_TORCH = "musetrace.overhead.built_in"
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)', re.MULTILINE)
FOREIGN_HEADERS = re.compile(r"^(pybind11|torch|ATen|c10|Python\.h|numpy)(/|$)")


@dataclass(frozen=True)
class Import:
    """One imported module: ``lazy`` inside a function, ``typing_only`` under ``if TYPE_CHECKING``."""

    module: str
    line: int
    lazy: bool
    typing_only: bool


Imports = dict[str, list[Import]]  # by importing module


def imports_of(source: str, module: str, *, is_package: bool = False) -> list[Import]:
    """The imports of a module's source, relative ones resolved, `import_module("literal")` among them."""
    package = module if is_package else module.rpartition(".")[0]

    def walk(node: ast.AST, lazy: bool, typing_only: bool) -> Iterator[Import]:
        for name in imported_names(node, package):
            yield Import(name, node.lineno, lazy, typing_only)
        lazy = lazy or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        guards = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for child in ast.iter_child_nodes(node):
            yield from walk(child, lazy, typing_only or (guards and child in node.body))

    return list(walk(ast.parse(source), lazy=False, typing_only=False))


def imported_names(node: ast.AST, package: str) -> list[str]:
    """What one statement or call imports; `from a import b` counts as `a.b`, since b may be a module."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        base = node.module or ""
        if node.level:
            parents = package.split(".")
            parents = parents[: len(parents) - node.level + 1]
            base = ".".join([*parents, node.module] if node.module else parents)
        return [f"{base}.{alias.name}" for alias in node.names]
    if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__")):
        return [node.args[0].value] if node.args and isinstance(node.args[0], ast.Constant) else []
    return []


def of(package: str, module: str) -> bool:
    """Whether a module is the package or stands below it."""
    return module == package or module.startswith(package + ".")


def module_files(repository: Path) -> Iterator[tuple[str, Path]]:
    """(dotted module name, file) of everything that is installed; dashboard/ is musetrace.dashboard."""
    for folder, name in (("musetrace", "musetrace"), ("dashboard", "musetrace.dashboard")):
        for file in sorted((repository / folder).rglob("*.py")):
            parts = file.relative_to(repository / folder).with_suffix("").parts
            if folder == "musetrace" and parts[0] == "dashboard":  # a link that some checkouts have
                continue
            yield ".".join([name, *(part for part in parts if part != "__init__")]), file


@pytest.fixture(scope="module")
def imports(repository: Path) -> Imports:
    """All imports of the package, by module."""
    found = {
        name: imports_of(file.read_text(encoding="utf-8"), name, is_package=file.name == "__init__.py")
        for name, file in module_files(repository)
    }
    assert {"musetrace", "musetrace.abi", "musetrace.cli"} <= set(found)
    return found


def offenders(imports: Imports, importers: Iterable[str], banned: Iterable[str]) -> list[tuple[str, Import]]:
    """Every import of a banned package by a module of the importers, with the importing module's name."""
    return [
        (name, found)
        for name, all_found in imports.items()
        if any(of(importer, name) for importer in importers)
        for found in all_found
        if any(of(package, found.module) for package in banned)
    ]


def test_nothing_but_view_knows_the_dashboard(imports: Imports) -> None:
    rest = {name: found for name, found in imports.items() if not of("musetrace.dashboard", name)}
    banned = ("musetrace.dashboard", "dashboard", "dash")
    for name, found in offenders(rest, ("musetrace",), banned):
        assert name == "musetrace.cli.view", f"{name}:{found.line} imports {found.module}"
        assert found.lazy or found.typing_only, f"{name}:{found.line} imports {found.module} at once"


def test_only_figures_and_pages_with_figures_draw_and_pages_only_when_they_are_made(imports: Imports) -> None:
    rest = {name: found for name, found in imports.items() if not of("musetrace.dashboard", name)}
    for name, found in offenders(rest, ("musetrace",), (FIGURES, "plotly")):
        if not of(FIGURES, name):
            assert name in PAGES_WITH_FIGURES, f"{name}:{found.line} imports {found.module}"
            assert found.lazy or found.typing_only, f"{name}:{found.line} imports {found.module} at once"


def test_figures_know_neither_page_nor_command_line(imports: Imports) -> None:
    banned = ("dash", "torch", "musetrace.muse", "musetrace.dashboard", "musetrace.cli", "musetrace.store")
    assert offenders(imports, (FIGURES,), banned) == []


def test_analysis_imports_neither_plotly_nor_dash_nor_torch(imports: Imports) -> None:
    banned = (*DRAWING, "torch", "musetrace.muse", FIGURES, "musetrace.dashboard", "musetrace.cli")
    assert offenders(imports, ("musetrace.analysis",), banned) == []


def test_wording_knows_the_analysis_and_not_where_it_is_shown(imports: Imports) -> None:
    banned = (*DRAWING, "torch", FIGURES, "musetrace.dashboard", "musetrace.cli", "musetrace.store")
    assert offenders(imports, ("musetrace.wording",), banned) == []
    assert offenders(imports, ("musetrace.analysis",), ("musetrace.wording",)) == []


def test_store_does_not_know_who_reads_it(imports: Imports) -> None:
    readers = ("musetrace.analysis", "musetrace.cli", "musetrace.dashboard", "musetrace.muse")
    banned = (*readers, *DRAWING, "torch")
    assert offenders(imports, ("musetrace.store",), banned) == []


def test_torch_is_not_imported_when_the_reading_side_is_loaded(imports: Imports) -> None:
    importers = [f"musetrace.{package}" for package in TORCH_FREE]
    found = offenders(imports, importers, ("torch", "musetrace.muse", NEEDS_TORCH))
    at_once = [(name, at) for name, at in found if not (at.lazy or at.typing_only)]
    assert [(name, at) for name, at in at_once if not of(NEEDS_TORCH, name)] == []


def test_triton_is_imported_by_its_own_package_alone(imports: Imports) -> None:
    users = {name for name, _ in offenders(imports, ("musetrace",), ("triton", "musetrace.triton"))}
    assert {"musetrace.triton.jobs", "musetrace.triton.stamps"} <= users
    assert [name for name in users if not of("musetrace.triton", name)] == []


def test_reading_and_recording_load_without_torch_and_dash(repository: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, repository / "tests" / "import_without_extras.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import torch", [Import("torch", 1, False, False)]),
        ("def f():\n    import dash.html", [Import("dash.html", 2, True, False)]),
        ("from ..dashboard import app", [Import("musetrace.dashboard.app", 1, False, False)]),
        ("from . import run", [Import("musetrace.cli.run", 1, False, False)]),
        ("if TYPE_CHECKING:\n    import torch", [Import("torch", 2, False, True)]),
        ("if TYPE_CHECKING:\n    pass\nelse:\n    import torch", [Import("torch", 4, False, False)]),
        ("x = import_module('plotly')", [Import("plotly", 1, False, False)]),
        ("import torchvision.ops", [Import("torchvision.ops", 1, False, False)]),
    ],
)
def test_the_import_parser_sees_every_form(source: str, expected: list[Import]) -> None:
    assert imports_of(source, "musetrace.cli.view") == expected
    assert not of("torch", "torchvision.ops")


def included_headers(repository: Path) -> Iterator[tuple[Path, str]]:
    """(file under csrc, included name) of every include."""
    csrc = repository / "csrc"
    for file in sorted(csrc.rglob("*")):
        if file.suffix in {".h", ".cuh", ".cu", ".cpp"}:
            for name in INCLUDE.findall(file.read_text(encoding="utf-8")):
                yield file.relative_to(csrc), name


def test_only_the_bindings_include_python_or_torch_headers(repository: Path) -> None:
    includes = list(included_headers(repository))
    foreign = [(file, name) for file, name in includes if FOREIGN_HEADERS.match(name)]
    assert {file.parts[0] for file, _ in foreign} == {"bindings"}
    assert not [name for _, name in foreign if name.startswith(("torch", "ATen", "c10"))]


def test_the_abi_includes_only_itself_and_the_standard_library(repository: Path) -> None:
    names = {name for file, name in included_headers(repository) if file.parent.name == "abi"}
    assert {"cstdint", "musetrace/abi/stamp.h"} <= names
    assert [name for name in names if "/" in name and not name.startswith("musetrace/abi/")] == []
    assert [name for name in names if "cuda" in name] == []
