"""What code inside a hostile replica gets: what is its own, and nothing else.

One file for all of it, since each worker of a test run has a platform of its own for its files.
"""

from __future__ import annotations

from tests.security.evil import SECRET, attack
from tests.security.grounds import Grounds

READ = """
try:
    with open({path!r}) as file:
        answer = file.read()
except OSError as error:
    answer = error.strerror
"""


class TestThePlatformsFiles:
    async def test_are_not_there(self, field: Grounds) -> None:
        path = field.canary("engine/canary")
        assert await attack(field.evil, READ.format(path=str(path))) == "No such file or directory"

    async def test_are_read_without_walls(self, open_field: Grounds) -> None:
        path = open_field.canary("engine/canary", SECRET)
        assert await attack(open_field.evil, READ.format(path=str(path))) == SECRET
