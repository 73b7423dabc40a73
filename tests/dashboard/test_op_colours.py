"""Ops are told apart by colour in both themes, also by readers who see colours differently."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from test_theme import DEFICIENCIES, contrast, lab, linear

from musetrace.figures.op_colours import PALETTE, op_colours
from musetrace.figures.theme import THEMES
from musetrace.job_table import JobTable

NEAR = 4  # places apart in the job table: what runs at about the same time


@pytest.mark.parametrize("name", THEMES)
@pytest.mark.parametrize("deficiency", DEFICIENCIES)
def test_ops_are_told_apart_and_neighbours_more_so(name: str, deficiency: str) -> None:
    matrix = np.array(DEFICIENCIES[deficiency])
    seen = [lab(matrix @ linear(colour.on(name))) for colour in PALETTE]
    for one, other in itertools.combinations(range(len(seen)), 2):
        least = 16 if other - one <= NEAR else 13
        assert np.linalg.norm(seen[one] - seen[other]) > least, f"places {one} and {other} look alike"


@pytest.mark.parametrize("name", THEMES)
def test_every_colour_stands_out_from_the_ground(name: str) -> None:
    assert min(contrast(colour.on(name), THEMES[name].paper) for colour in PALETTE) >= 3


def test_a_colour_goes_by_the_ops_place_and_not_by_what_is_shown() -> None:
    jobs = JobTable.built_in().jobs
    colours = op_colours(job.op for job in jobs)
    places = list(dict.fromkeys(job.op for job in jobs))
    assert [colours[op] for op in places] == [PALETTE[place % len(PALETTE)] for place in range(len(places))]
    # Whatever runs in one launch has colours of its own.
    layer = [job.op for job in JobTable.built_in("muse_hopper").jobs]
    assert len(set(op_colours(layer).values())) == len(set(layer))
    many = op_colours(f"op{number}" for number in range(25))
    assert many["op21"] == PALETTE[1]
