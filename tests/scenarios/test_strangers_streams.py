"""Services that we did not write, deployed and asked: streams, sockets, batches and tasks."""

from __future__ import annotations

import pytest

from tests.support.services.answers import streams
from tests.support.services.strangers import MARKS, Stranger, answers_of

pytestmark = MARKS

ANSWERS = answers_of(streams)


@pytest.mark.parametrize("name", ANSWERS)
def test_all_answers_are_right(name: str, strangers: dict[str, Stranger]) -> None:
    print(strangers[name])  # shown by `pytest -s`
    strangers[name].ask(ANSWERS[name])
