"""Takes pictures of a run's page, light and dark, wide and narrow.

    python tests/dashboard/screenshots.py RUN FOLDER [WHERE]

WHERE is what the address bar holds, ``ops?kind=global&rank=0``.
"""

from __future__ import annotations

import sys
from pathlib import Path

from chromium import chromium, wait_until_drawn

from musetrace.dashboard import DashboardServer

WIDTHS = (1440, 900)
SCHEMES = ("light", "dark")


def take(run: Path, folder: Path, where: str = "") -> list[Path]:
    """Write one PNG of the whole page for each width and theme, and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    pictures = []
    with DashboardServer([run], port=0) as server:
        for width in WIDTHS:
            for scheme in SCHEMES:
                picture = folder / f"view-{width}-{scheme}.png"
                with chromium(width, 1000, scheme) as context:
                    page = context.new_page()
                    page.goto(server.entry_url)
                    page.goto(server.url + where, wait_until="networkidle")
                    wait_until_drawn(page)
                    page.screenshot(path=picture, full_page=True)
                pictures.append(picture)
    return pictures


if __name__ == "__main__":
    for path in take(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:4]):
        print(path)
