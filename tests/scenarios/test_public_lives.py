"""Services that we did not write, deployed and asked: mounts, contexts and hooks."""

from __future__ import annotations

from tests.support.services.answers import lives
from tests.support.services.public_services import MARKS, answers_of, asking_each

pytestmark = MARKS
ANSWERS = answers_of(lives)
test_all_answers_are_right = asking_each(ANSWERS)
