"""How long a test waits for what must come before it says that it has not.

What is tested is that it comes: a machine may be slower than ours, or have other things to do.
"""

from __future__ import annotations

PATIENCE_S = 60.0
