"""Services that we did not write, deployed and asked: DataFrames, pictures and Flask's pages."""

from __future__ import annotations

from tests.support.services.answers import tables
from tests.support.services.public_services import MARKS, answers_of, asking_each

pytestmark = MARKS
ANSWERS = answers_of(tables)
test_all_answers_are_right = asking_each(ANSWERS)
