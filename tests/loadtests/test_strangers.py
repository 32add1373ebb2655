from __future__ import annotations

from loadtests.storms import strangers
from tests.support.services.public_services import NAMES, PUBLIC


def test_every_service_that_we_did_not_write_is_asked() -> None:
    assert sorted(strangers.ANSWERS) == NAMES
    assert len(NAMES) >= 20


def test_none_of_them_says_how_many_requests_it_takes() -> None:
    sources = [file.read_text() for file in PUBLIC.glob("*/*.py")]
    assert not [source for source in sources if "concurrency" in source]
