"""`… NAME FOLDER MOST STEP`: kills a work at lines of it, and prints how many lines it has and how
often it was killed, once nothing was lost at any of these moments.

It is a program, as it forks, which a process with threads must not do.
"""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

from tests.support.control_plane.backup_deaths import RESTORE, SAVE
from tests.support.control_plane.killed_lines import deaths
from tests.support.control_plane.migration_deaths import DOWN, UP
from tests.support.control_plane.rotation_deaths import ROTATE, ROTATE_SEALED

WORKS = {work.name: work for work in (ROTATE, ROTATE_SEALED, SAVE, RESTORE, UP, DOWN)}
PROGRAM = "tests.support.control_plane.line_deaths"


def line_deaths(name: str, folder: Path, most: int, step: int = 0) -> tuple[int, int]:
    """As `killed_lines.deaths`, by a process of its own."""
    words = [sys.executable, "-m", PROGRAM, name, str(folder), str(most), str(step)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines, died = map(int, done.stdout.split())
    return lines, died


if __name__ == "__main__":
    logging.disable()
    print(*deaths(WORKS[sys.argv[1]], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])))
