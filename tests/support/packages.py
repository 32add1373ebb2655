"""Where the builds of all tests keep what they download: the suite is not to fetch it each time."""

from __future__ import annotations

import os
from pathlib import Path

PACKAGES = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hotplate-tests"


def packages_of(user: int) -> Path:
    """The same for a platform of another user, who has no home."""
    if user == os.geteuid():
        return PACKAGES
    theirs = Path(f"/var/tmp/hotplate-tests-{user}")
    theirs.mkdir(mode=0o700, exist_ok=True)
    os.chown(theirs, user, user)
    return theirs
