"""Both themes can be read, also by readers who see colours differently."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from musetrace.figures.theme import THEMES, Theme, style_sheet, theme
from musetrace.job_table import JOB_KINDS

Floats = npt.NDArray[np.float64]

# Machado, Oliveira and Fernandes 2009, severity 1: linear RGB to linear RGB.
DEFICIENCIES = {
    "none": np.eye(3),
    "protan": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deutan": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritan": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}
SRGB_TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
WHITE = SRGB_TO_XYZ.sum(axis=1)
ALL_THEMES = pytest.mark.parametrize("look", THEMES.values(), ids=THEMES.keys())


def linear(colour: str) -> Floats:
    assert re.fullmatch("#[0-9a-f]{6}", colour)
    value = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)


def lab(rgb: Floats) -> Floats:
    scaled = SRGB_TO_XYZ @ np.clip(rgb, 0, 1) / WHITE
    x, y, z = np.where(scaled > 216 / 24389, np.cbrt(scaled), (24389 / 27 * scaled + 16) / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def contrast(one: str, other: str) -> float:
    light, dark = sorted((float(SRGB_TO_XYZ[1] @ linear(colour)) for colour in (one, other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@ALL_THEMES
@pytest.mark.parametrize("deficiency", DEFICIENCIES)
def test_kinds_are_told_apart_where_no_outline_can_be_drawn(look: Theme, deficiency: str) -> None:
    matrix = np.array(DEFICIENCIES[deficiency])
    seen = {kind: lab(matrix @ linear(style.flat)) for kind, style in look.kinds.items()}
    seen["ground"] = lab(matrix @ linear(look.paper))
    for one, other in itertools.combinations(seen, 2):
        assert np.linalg.norm(seen[one] - seen[other]) > 11, f"{one} and {other} look alike"


@ALL_THEMES
def test_text_has_enough_contrast(look: Theme) -> None:
    for ink in (look.ink, look.soft_ink, look.good, look.poor, look.bad, look.accent):
        assert min(contrast(ink, look.paper), contrast(ink, look.panel)) >= 4.5
    assert min(contrast(look.faint_ink, look.paper), contrast(look.faint_ink, look.panel)) >= 4
    for kind, style in look.kinds.items():
        assert min(contrast(style.text, style.fill), contrast(style.text, style.flat)) >= 3.5, kind


def test_every_kind_of_job_has_a_style_in_both_themes() -> None:
    assert all(set(look.kinds) == set(JOB_KINDS) for look in THEMES.values())
    assert theme("nonsense") is theme(None) is THEMES["light"]


def test_the_style_sheet_uses_only_properties_that_there_are(repository: Path) -> None:
    sheets = sorted((repository / "dashboard" / "assets").rglob("*.css"))
    css = "".join(sheet.read_text(encoding="utf-8") for sheet in sheets)
    defined = set(re.findall(r"(--[\w-]+):", style_sheet() + css))
    assert set(re.findall(r"var\((--[\w-]+)", css)) <= defined
    assert not re.search(r"#[0-9a-fA-F]{3,8}\b|\brgba?\(|url\(|@import", css), "colours are in theme.py"
