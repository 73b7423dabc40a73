"""Names that want to be more than text."""

from __future__ import annotations

HOSTILE = (
    "<img src=x onerror=alert(1)>",
    "<b>bold</b>",
    "gemm<128,64>",
    "%{x}",
    "</script><script>alert(2)</script>",
    '<a href="http://evil.example/">a</a>',
    "&lt;b&gt;",
    "javascript:alert(3)",
    "<svg/onload=alert(4)>",
    "%{customdata[0]}",
    "a" * 200,
    "nul\x00 and \u202e turned",
)
