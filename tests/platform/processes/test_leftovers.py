"""What a control plane that was killed leaves behind."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest

from hotplate.deploy.builds import BuildCommand
from hotplate.deploy.process.procfs import runs
from hotplate.deploy.sandbox.builds import Builds
from hotplate.deploy.sandbox.cgroups import Cgroups
from hotplate.deploy.sandbox.isolation import Isolation
from hotplate.platform.processes.data_dir import DataDir
from hotplate.platform.processes.leftovers import end_builds
from tests.support.patience import until

ESCAPES = "setsid env -i sh -c 'echo up > $0; exec sleep 60' {note} & exec sleep 60"
"""A build of which a part leaves its session and its marker."""


def working_in(folder: Path) -> list[int]:
    """The processes whose working directory it is, under whatever name they see it."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # gone, or somebody else's
            if (entry / "cwd").samefile(folder):
                found.append(int(entry.name))
    return found


@pytest.mark.parametrize("walled", [True, False], ids=["within walls", "without"])
async def test_builds_that_nobody_waits_for_are_ended_with_what_hides_from_us(
    tmp_path: Path, walled: bool
) -> None:
    """Within walls all ends with the first process; without, control groups find it."""
    data = DataDir.at(tmp_path / "data")
    own = data.folder("environments") / "default" / "digest" / "attempt"
    own.mkdir(parents=True)
    isolation = Isolation([data.root] if walled else [])
    cgroups = Cgroups(data.folder("environments"), 4 << 30)
    if not walled and not cgroups.enforced:
        pytest.skip("no control group may be made here")
    builds = Builds(isolation, cgroups, 4 << 30)
    note = own / "note"
    command = ["/bin/sh", "-c", ESCAPES.format(note=note)]
    log = tmp_path / "log"
    step = await builds.start(BuildCommand(command, dict(os.environ), own, log, own))

    async def escaped() -> bool:
        return note.exists()

    await until(escaped)
    members = working_in(own)
    assert len(members) >= 2
    await end_builds(data)  # as its successor does, who knows nothing of the step
    await builds.end_leftovers()
    assert not any(map(runs, members))
    await step.wait()
    builds.close()
