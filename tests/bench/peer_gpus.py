"""The GPUs of this host, and whether each can read the others' memory.

``python -m tests.bench.peer_gpus [--processes N]``. Exit code 1 when one of the first N cannot, or there are
fewer.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

import torch


def main() -> int:
    """Print them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=None, metavar="N", help="GPUs wanted (default all)")
    wanted = parser.parse_args().processes
    found = torch.cuda.device_count()
    for gpu in range(found):
        free, total = torch.cuda.mem_get_info(gpu)
        print(f"GPU {gpu}: {torch.cuda.get_device_name(gpu)}, {free / 1e9:.1f} of {total / 1e9:.1f} GB free")
    wanted = found if wanted is None else wanted
    if found < wanted:
        print(f"{wanted} GPUs are wanted, and {found} are here")
        return 1
    pairs = [(one, other) for one in range(wanted) for other in range(wanted) if one != other]
    without = [pair for pair in pairs if not torch.cuda.can_device_access_peer(*pair)]
    print(f"peer access: {len(pairs) - len(without)} of {len(pairs)} ordered pairs; without: {without}")
    for words in (("topo", "-m"), ("nvlink", "--status")):
        told = subprocess.run(["nvidia-smi", *words], capture_output=True, text=True, timeout=20, check=False)
        print(f"nvidia-smi {' '.join(words)}:\n{told.stdout.strip() or told.stderr.strip()}")
    return int(bool(without))


if __name__ == "__main__":
    sys.exit(main())
