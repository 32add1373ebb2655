"""What a hostile bento makes of environments that others use, and of the machine that builds."""

from __future__ import annotations

import os
from pathlib import Path

from tests.security.evil import SECRET, attack, building
from tests.security.grounds import Grounds
from tests.support.end_to_end.rough_client import Bento, RoughClient

PLANT = """
import os, sysconfig
try:
    with open(os.path.join(sysconfig.get_path("purelib"), {name!r}), "w") as file:
        file.write("import this")
except OSError as error:
    answer = error.strerror
"""
FLIP = """
import os, sys
try:
    os.symlink({target!r}, sys.prefix + "/bin/other")
    os.rename(sys.prefix + "/bin/other", sys.prefix + "/bin/python")
except OSError as error:
    answer = error.strerror
"""


def planted(grounds: Grounds, name: str) -> list[Path]:
    """Where in the environments of all organizations a file of that name is."""
    return list((grounds.platform.data / "environments").rglob(name))


def pythons(grounds: Grounds) -> dict[Path, str]:
    """Where each environment's `bin/python` leads to."""
    found = (grounds.platform.data / "environments").glob("*/*/*/venv/bin/python")
    return {path: os.readlink(path) for path in found}


SEES = """
import os, sysconfig
answer = os.path.exists(os.path.join(sysconfig.get_path("purelib"), {name!r}))
"""
HOME = """
import os, tempfile
home = os.path.expanduser("~")
with open(home + "/note", "w") as file:
    file.write("mine")
answer = [home, os.listdir(home), tempfile.gettempdir(), os.environ.get("HF_HOME")]
"""


class TestAnEnvironment:
    async def test_is_not_changed_for_others(self, field: Grounds) -> None:
        await attack(field.evil, PLANT.format(name="evil.pth"))
        assert planted(field, "evil.pth") == []

    async def test_seems_to_be_its_own_to_a_service_that_installs_there(
        self, field: Grounds
    ) -> None:
        assert await attack(field.evil, PLANT.format(name="own.pth")) is None
        assert await attack(field.evil, SEES.format(name="own.pth"))

    async def test_is_beside_a_home_that_goes_with_the_replica(self, field: Grounds) -> None:
        home, files, temporary, _ = await attack(field.evil, HOME)
        assert (home, temporary) == ("/tmp/home", "/tmp")
        assert "note" in files

    async def test_is_changed_for_all_without_walls(self, open_field: Grounds) -> None:
        await attack(open_field.evil, PLANT.format(name="evil.pth"))
        (file,) = planted(open_field, "evil.pth")
        file.unlink()

    async def test_has_the_interpreter_that_it_was_built_with(self, field: Grounds) -> None:
        before = pythons(field)
        await attack(field.evil, FLIP.format(target=str(field.platform.data / "engine")))
        assert before
        assert pythons(field) == before

    async def test_has_any_interpreter_without_walls(self, open_field: Grounds) -> None:
        before = pythons(open_field)
        target = str(open_field.platform.data / "engine")
        await attack(open_field.evil, FLIP.format(target=target))
        ((python, _),) = pythons(open_field).items() - before.items()
        assert os.readlink(python) == target
        python.unlink()
        python.symlink_to(before[python])


class TestABuild:
    async def test_sees_no_file_of_the_platform(self, field: Grounds, any_bento: Bento) -> None:
        assert SECRET not in await _built(field, any_bento)

    async def test_sees_them_all_without_walls(self, open_field: Grounds, any_bento: Bento) -> None:
        assert SECRET in await _built(open_field, any_bento)

    async def test_runs_no_program_in_place_of_an_interpreter(
        self, field: Grounds, any_bento: Bento
    ) -> None:
        bento = building(any_bento, "programmer", python_version="/bin/false")
        async with RoughClient(field.platform) as rough:
            await rough.deploy("programmer", await rough.push(bento))
            page = await rough.settled("programmer", "image-build-failed")
        await field.platform.delete("programmer")
        assert "is none; build it again with one such as 3.11" in str(page)


async def _built(grounds: Grounds, bento: Bento) -> str:
    """What a build prints that asks for a file of the platform's."""
    secret = grounds.canary("engine/canary", SECRET)
    async with RoughClient(grounds.platform) as rough:
        tag = await rough.push(building(bento, "builder", f"cat {secret}; exit 1"))
        await rough.deploy("builder", tag)
        await rough.settled("builder", "image-build-failed")
    logs = (grounds.platform.data / "environments").glob("*/*/build.log")
    said = [text for log in logs if "exit 1" in (text := log.read_text())]
    await grounds.platform.delete("builder")
    assert said
    return "".join(said)
