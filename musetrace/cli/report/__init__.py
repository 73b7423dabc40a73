"""``musetrace report``: one document about a run, shown as text, Markdown, HTML or JSON.

``questions`` lists its sections: what each asks, and how its answer is shown. ``document`` is what a section
is made of; ``as_text``, ``as_markdown`` and ``as_html`` render it.
"""

from __future__ import annotations
