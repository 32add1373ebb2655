"""Services that we did not write, deployed and asked: chains, programs and several workers."""

from __future__ import annotations

from tests.support.services.answers import chains
from tests.support.services.public_services import MARKS, answers_of, asking_each

pytestmark = MARKS
ANSWERS = answers_of(chains)
test_all_answers_are_right = asking_each(ANSWERS)
