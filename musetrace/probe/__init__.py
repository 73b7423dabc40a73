"""What a device can do, measured on it: the facts that `musetrace probe` prints and keeps beside a run."""

from __future__ import annotations
