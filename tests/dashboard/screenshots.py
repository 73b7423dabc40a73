"""Takes pictures of a run's page, light and dark, wide and narrow.

    python tests/dashboard/screenshots.py FOLDER RUN [RUN] [--where VIEW?QUERY] [--widths 1440,900]

Of every view, unless ``--where`` names one as the address bar does, ``ops?kind=global&rank=0``. With two runs
the views that compare have something to show. Of one width the pictures are named as in samples/pictures:

    python tests/dashboard/screenshots.py samples/pictures COPY_OF_RUN --where stops --widths 1440
"""

from __future__ import annotations

import argparse
from pathlib import Path

from chromium import chromium, wait_until_drawn

from musetrace.dashboard import DashboardServer
from musetrace.dashboard.views import VIEWS

SCHEMES = ("light", "dark")


def take(folder: Path, runs: list[Path], places: list[str], widths: list[int]) -> list[Path]:
    """Write one PNG of the whole page for each place, width and theme, and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    pictures = []
    with DashboardServer(runs, port=0) as server:
        for width in widths:
            for scheme in SCHEMES:
                with chromium(width, 1000, scheme) as context:
                    page = context.new_page()
                    page.goto(server.entry_url)
                    for where in places:
                        page.goto(server.url + where, wait_until="networkidle")
                        wait_until_drawn(page)
                        name = where.partition("?")[0] + (f"-{width}" if len(widths) > 1 else "")
                        picture = folder / f"{name}-{scheme}.png"
                        page.screenshot(path=picture, full_page=True)
                        pictures.append(picture)
    return pictures


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--where", default="")
    parser.add_argument("--widths", default="1440,900")
    given = parser.parse_args()
    all_places = [given.where] if given.where else [view.name for view in VIEWS]
    for path in take(given.folder, given.runs, all_places, [int(width) for width in given.widths.split(",")]):
        print(path)
