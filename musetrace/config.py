"""Where the header for stamps in your own kernel is: ``python -m musetrace.config``.

    nvcc $(python -m musetrace.config --cflags) kernel.cu
    cmake -Dmusetrace_DIR=$(python -m musetrace.config --cmakedir) ...

where ``CMakeLists.txt`` says ``find_package(musetrace CONFIG)`` and links ``musetrace::stamp``.
The header, ``musetrace/stamp.cuh``, is C++17 and needs no library; NVRTC takes it too.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import musetrace
from musetrace.errors import InstallError

NVCC_FLAGS = ("-std=c++17",)


def _installed(place: str) -> Path:
    # An editable install has two folders: the sources, and what CMake installed.
    for folder in musetrace.__path__:
        if (Path(folder) / place).is_file():
            return Path(folder) / place
    searched = ", ".join(musetrace.__path__)
    raise InstallError(f"{place} is not in the installed package ({searched}); install musetrace with pip")


def get_include() -> str:
    """The folder to name in ``-I``, so that ``#include "musetrace/stamp.cuh"`` is found.

    Raises:
        InstallError: the package was installed without its headers.
    """
    return str(_installed("include/musetrace/stamp.cuh").parents[1])


def get_cmake_folder() -> str:
    """The folder of the CMake package, for ``musetrace_DIR``; its target is ``musetrace::stamp``.

    Raises:
        InstallError: the package was installed without it.
    """
    return str(_installed("cmake/musetraceConfig.cmake").parent)


def main(arguments: list[str] | None = None) -> int:
    """Print what is asked for, on one line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m musetrace.config", description="Paths for kernel builds")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--cflags", action="store_true", help="options for nvcc")
    which.add_argument("--includes", action="store_true", help="the -I option alone, for any compiler")
    which.add_argument("--cmakedir", action="store_true", help="folder for musetrace_DIR of CMake")
    which.add_argument("--version", action="store_true", help="of the package")
    asked = parser.parse_args(arguments)
    try:
        if asked.version:
            print(musetrace.__version__)
        elif asked.cmakedir:
            print(get_cmake_folder())
        else:
            flags = [f"-I{get_include()}"]
            print(*([*NVCC_FLAGS, *flags] if asked.cflags else flags))
    except InstallError as error:
        print(f"musetrace.config: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
