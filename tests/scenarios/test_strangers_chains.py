"""Services that we did not write, deployed and asked: chains, programs and several workers."""

from __future__ import annotations

import pytest

from tests.support.services.answers import chains
from tests.support.services.strangers import MARKS, Stranger, answers_of

pytestmark = MARKS

ANSWERS = answers_of(chains)


@pytest.mark.parametrize("name", ANSWERS)
def test_all_answers_are_right(name: str, strangers: dict[str, Stranger]) -> None:
    print(strangers[name])  # shown by `pytest -s`
    strangers[name].ask(ANSWERS[name])
