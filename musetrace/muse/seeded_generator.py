"""Generators of random numbers on any device, each for one thing alone."""

from __future__ import annotations

import hashlib

import torch


def seeded_generator(device: torch.device, *thing: int | str) -> torch.Generator:
    """What makes one thing: the same numbers in every process, and others for every other thing.

    Args:
        thing: what is made, such as a seed, a name, a layer and a rank.
    """
    digest = hashlib.sha256("/".join(map(str, thing)).encode()).digest()
    return torch.Generator(device).manual_seed(int.from_bytes(digest[:7], "big"))
