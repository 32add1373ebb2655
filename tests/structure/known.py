"""What still breaks a rule of the tree. These lists only shrink."""

from __future__ import annotations

READMES_BY_FILE: set[str] = set()
LARGE_CLASSES: set[str] = set()
TESTS_REACHING_IN: set[str] = set()
