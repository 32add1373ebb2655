"""Where a value stands in clear among a platform's files."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable

from tests.support.control_plane import postgresql
from tests.support.end_to_end.platform_process import Platform


def places_of(values: Iterable[str], platform: Platform) -> list[str]:
    """The files that have one of them: of its data and its database's server, what it prints, and
    what replicas share."""
    places = [*map(str, (platform.data, platform.log, platform.shared))]
    if platform.database:
        places.append(postgresql.folder_of(platform.database))
    command = ["grep", "-rlaF", "--devices=skip", "--file=-", *places]
    done = subprocess.run(
        command, input="\n".join(values), capture_output=True, text=True, check=False
    )
    assert done.returncode in (0, 1, 2), done.stderr  # 2: a file has gone meanwhile
    assert "No such file" in done.stderr or not done.stderr, done.stderr
    return done.stdout.splitlines()
