"""musetrace: a GPU-side profiler and timeline visualizer for megakernels."""

from __future__ import annotations

__version__ = "0.1.0"
