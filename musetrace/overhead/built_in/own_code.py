"""The machine code of the built-in kernels: off beside absent, in the library that is timed."""

from __future__ import annotations

from pathlib import Path

from musetrace.errors import OverheadError
from musetrace.overhead.machine_code import CodeComparison, compare, read_kernels

# LayerBuild of csrc/megakernel/layer_kernel.cuh, as it stands in a mangled name.
_OFF, _ABSENT = "LayerBuildE0E", "LayerBuildE4E"
_KERNELS = ("muse_layer", "muse_head")


def compare_own_code(library: Path) -> tuple[CodeComparison, ...]:
    """Compare the layer's and the head's kernels.

    Args:
        library: the compiled module, or any file with both builds.

    Raises:
        OverheadError: it cannot be read, or a kernel is not in it as it is run.
    """
    kernels = read_kernels(library)
    found = []
    for kernel in _KERNELS:
        off = [name for name in kernels if kernel in name and _OFF in name]
        absent = [name.replace(_OFF, _ABSENT) for name in off]
        if len(off) != 1 or absent[0] not in kernels:
            raise OverheadError(f"{kernel} is not in {library.name} with and without stamps; build it again")
        code = kernels[off[0]]
        found.append(CodeComparison(kernel, len(code.code), compare(code, kernels[absent[0]])))
    return tuple(found)
