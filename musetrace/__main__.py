"""``python -m musetrace``."""

from __future__ import annotations

import sys

from musetrace.cli import main

sys.exit(main())
