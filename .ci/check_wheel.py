"""Checks that a wheel has every file of the package and of the dashboard, the compiled module, and no more.

Usage: check_wheel.py WHEEL, from the root of the clone.
"""

from __future__ import annotations

import subprocess
import sys
import zipfile

PLACES = {"musetrace/": "musetrace/", "dashboard/": "musetrace/dashboard/"}
ABI_HEADERS = ("integers", "job", "job_table_json", "slot_map", "stamp")
STAMP_HEADERS = ("clock", "kernel_stamps", "region", "warp_slots", "warp_stamps")
# What CMake installs beside the compiled modules.
INSTALLED = {
    "musetrace/cmake/musetraceConfig.cmake",
    "musetrace/cmake/musetraceConfigVersion.cmake",
    *(f"musetrace/include/musetrace/abi/{name}.h" for name in ABI_HEADERS),
    *(f"musetrace/include/musetrace/stamp/{name}.cuh" for name in STAMP_HEADERS),
    "musetrace/include/musetrace/stamp.cuh",
}


def tracked_files() -> set[str]:
    """The files of git under the package folders, by their name in the wheel."""
    listing = subprocess.run(["git", "ls-files", *PLACES], check=True, capture_output=True, text=True).stdout
    names = set()
    for path in listing.splitlines():
        folder = path.split("/", 1)[0] + "/"
        names.add(PLACES[folder] + path.removeprefix(folder))
    return names


def problems(wheel: str) -> list[str]:
    """One sentence for each thing that is wrong with the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if not name.endswith("/")}
    carried = {name for name in names if ".dist-info/" not in name}
    compiled = {name for name in carried if name.startswith("musetrace/_") and name.endswith(".so")}
    expected = tracked_files() | INSTALLED
    found = [f"missing: {name}" for name in sorted(expected - carried)]
    strange = carried - expected - compiled
    found += [f"not of the package: {name}" for name in sorted(strange)]
    if not any(name.startswith("musetrace/_core.") for name in compiled):
        found.append("missing: the compiled module musetrace/_core")
    if "musetrace/dashboard/__init__.py" not in carried:
        found.append("missing: musetrace/dashboard/__init__.py")
    return found


def main() -> int:
    """Prints what is wrong; exit code 1 when anything is."""
    found = problems(sys.argv[1])
    print("\n".join(found) or f"{len(tracked_files())} files of the package, headers, the compiled module")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
