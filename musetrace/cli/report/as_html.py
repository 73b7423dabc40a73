"""A document as one HTML file that needs nothing else: neither a network nor a server.

Plotly's code is in it. The policy in its head lets only the scripts run that are written here, by their hash,
and lets the page ask for nothing: whatever a name in a run says, it is text.
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
from collections.abc import Iterator, Sequence
from importlib.resources import files
from itertools import groupby

from musetrace import __version__
from musetrace.cli.output import Screen
from musetrace.cli.report.document import (
    Block,
    Document,
    Legend,
    Listing,
    Picture,
    Ranking,
    Section,
    Sentence,
    Table,
)
from musetrace.cli.report.html_bars import KINDS, HtmlBars, swatch
from musetrace.cli.report.html_figures import figures_json, plotly_code
from musetrace.cli.table import Column
from musetrace.wording.numbers import decimals_for, us

# Every column of a table is shown; a table that is too wide scrolls.
HTML_SCREEN = Screen(width=160, unicode=True)

_POLICY = (
    "default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; "
    "base-uri 'none'; form-action 'none'"
)
_LEGEND = f'<ul class="legend">{"".join(f"<li>{swatch(kind)}{kind}</li>" for kind in KINDS)}</ul>'
_UNIT = re.compile(r" (?=%|us\b|ns\b)")
_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>
{style}
</style>
</head>
<body>
<header><h1>{title}</h1></header>
<nav aria-label="sections"><ul>{links}</ul></nav>
<main>
{sections}
</main>
<footer>musetrace {version}; figures by plotly; point at a bar for its numbers, drag to zoom, double-click to
zoom out</footer>
<script type="application/json" id="figures">{figures}</script>
<script>{plotly}</script>
<script>{code}</script>
</body>
</html>
"""


def html_text(document: Document) -> str:
    """The whole file. Needs plotly (``html_figures.require_plotly``)."""
    from musetrace.figures.theme import style_sheet

    pictures = [
        block for section in document.sections for block in section.blocks if isinstance(block, Picture)
    ]
    figures, heights = figures_json(pictures)
    scripts = {"plotly": plotly_code(), "code": _asset("report.js")}
    ids = [f"s{number}" for number in range(len(document.sections))]
    height_of = {id(picture): height for picture, height in zip(pictures, heights, strict=True)}
    return _PAGE.format(
        policy=_POLICY.format(hashes=" ".join(map(_hash, scripts.values()))),
        title=_shown(document.title),
        style=style_sheet() + _asset("report.css"),
        links="".join(_links(document.sections, ids)),
        sections="\n".join(
            _section(section, ids[number], height_of) for number, section in enumerate(document.sections)
        ),
        version=_shown(__version__),
        figures=figures,
        **scripts,
    )


def _shown(text: str) -> str:
    """``text`` as HTML that shows it literally; a number and its unit stay together."""
    return html.escape(_UNIT.sub("\N{NO-BREAK SPACE}", text))


def _asset(name: str) -> str:
    return (files("musetrace.cli.report") / "assets" / name).read_text(encoding="utf-8")


def _hash(script: str) -> str:
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return f"'sha256-{digest}'"


def _links(sections: Sequence[Section], ids: Sequence[str]) -> Iterator[str]:
    for section, its_id in zip(sections, ids, strict=True):
        if section.title:
            yield f'<li><a href="#{its_id}">{_shown(section.title)}</a></li>'


def _section(section: Section, its_id: str, height_of: dict[int, int]) -> str:
    page = f'<code class="page">musetrace explain {_shown(section.page)}</code>' if section.page else ""
    head = f"{page}<h2>{_shown(section.title)}</h2>" if section.title else ""
    lead = f'<p class="lead">{_shown(section.lead)}</p>' if section.lead else ""
    parts: list[str] = []
    for is_line, blocks in groupby(section.blocks, key=lambda block: isinstance(block, str)):
        if is_line:
            lines = "\n".join(block for block in blocks if isinstance(block, str))
            parts.append(f"<pre>{_shown(lines)}</pre>")
        else:
            parts += [_block(block, height_of) for block in blocks]
    untitled = "" if section.title else ' class="untitled"'
    return f'<section id="{its_id}"{untitled}>{head}{lead}\n{chr(10).join(parts)}\n</section>'


def _block(block: Block, height_of: dict[int, int]) -> str:
    if isinstance(block, Sentence):
        return f"<p>{_shown(block.text)}</p>"
    if isinstance(block, Listing):
        entries = [(_shown(label), _shown(text)) for label, text in block.entries]
        return f"<dl>{''.join(f'<dt>{label}</dt><dd>{text}</dd>' for label, text in entries)}</dl>"
    if isinstance(block, Ranking):
        return f"<ol>{''.join(_items(block))}</ol>"
    if isinstance(block, Legend):
        return _LEGEND
    if isinstance(block, Picture):
        return _figure(block, height_of[id(block)])
    assert isinstance(block, Table)
    table = f'<div class="wide">{_table(block)}</div>'
    if not block.folded:
        return table
    return f"<details><summary>{_shown(block.folded)}</summary>{table}</details>"


def _items(block: Ranking) -> Iterator[str]:
    for mark, (headline, *details) in zip(block.marks, block.items, strict=True):
        below = "".join(f'<span class="detail">{_shown(text)}</span>' for text in details)
        text = f"<div><strong>{_shown(headline)}</strong>{below}</div>"
        yield f'<li><span class="mark">{_shown(mark)}</span>{text}</li>'


def _figure(picture: Picture, height_px: int) -> str:
    its_id = _shown(f"figure-{picture.name}")
    parts = [
        f"<figcaption>{_shown(picture.caption)}</figcaption>",
        _LEGEND if picture.has_kinds else "",
        f'<div class="plot" id="{its_id}" style="height:{height_px}px"></div>',
    ]
    return f"<figure>{''.join(parts)}</figure>"


def _table(table: Table) -> str:
    columns, bars = table.columns, table.bars(HtmlBars(table.axis_ns))
    rows = []
    for number, cells in enumerate(zip(*(column.cells for column in columns), strict=True)):
        texts = (f"<td{_left(c)}>{_shown(text)}</td>" for c, text in zip(columns, cells, strict=True))
        bar = f'<td class="bars">{bars[number]}</td>' if bars else ""
        rows.append(f"<tr>{''.join(texts)}{bar}</tr>")
    return f"<table><thead>{_head(table)}</thead><tbody>{''.join(rows)}</tbody></table>"


def _head(table: Table) -> str:
    titles = "".join(f"<th{_left(column)}>{_shown(column.title)}</th>" for column in table.columns)
    axis = over = ""
    if table.rows:
        last = f"{us(table.axis_ns, decimals_for(table.axis_ns))} us"
        ends = "".join(f"<span>{_shown(label)}</span>" for label in table.axis_labels or ("0", last))
        axis = f'<th class="bars"><div class="axis">{ends}</div></th>'
    if any(column.over for column in table.columns):
        over = f"<tr>{''.join(_over(table.columns))}{'<th></th>' if axis else ''}</tr>"
    return f"{over}<tr>{titles}{axis}</tr>"


def _over(columns: Sequence[Column]) -> Iterator[str]:
    index = 0
    while index < len(columns):
        column = columns[index]
        yield f'<th class="over" colspan="{column.spans}">{_shown(column.over)}</th>'
        index += column.spans


def _left(column: Column) -> str:
    return ' class="left"' if column.left else ""
