"""What a hostile replica sees of the platform's files."""

from __future__ import annotations

from tests.scenarios.rough_client import Bento
from tests.security.evil import SECRET, attack
from tests.security.grounds import Grounds, grounds

READ_CANARY = """
try:
    with open({path!r}) as file:
        answer = file.read()
except OSError as error:
    answer = error.strerror
"""


async def test_the_platforms_files_are_not_there(field: Grounds) -> None:
    path = field.canary("engine/canary")
    assert await attack(field.evil, READ_CANARY.format(path=str(path))) == (
        "No such file or directory"
    )


async def test_without_walls_they_are(any_bento: Bento, user: int) -> None:
    async with grounds(any_bento, user, without="walls", victim=False) as field:
        path = field.canary("engine/canary", SECRET)
        assert await attack(field.evil, READ_CANARY.format(path=str(path))) == SECRET
