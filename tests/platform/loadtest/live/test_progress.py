"""The terminal while a load test runs."""

from __future__ import annotations

import io

from rich.console import Console

from hotplate.platform.loadtest.live.figures import LoadFigures
from hotplate.platform.loadtest.live.progress import ProgressDisplay
from hotplate.platform.loadtest.observation import Observation

FIGURES = LoadFigures(10.0, 10.0, answered=98, refused=1, failed=2, p95_s=0.1234)
SEEN = Observation(5.0, queued=3, in_flight=4, ready=2, starting=1, slots=8, gpus=0.0)


def lines(*moments: float, figures: LoadFigures = FIGURES, seen: Observation | None = SEEN) -> str:
    file = io.StringIO()
    with ProgressDisplay(Console(file=file, width=40), 60.0) as display:
        for at_s in moments:
            display.show(at_s, figures, seen)
    return file.getvalue()


def test_where_there_is_no_terminal_a_line_comes_every_ten_seconds() -> None:
    said = lines(*(step / 2 for step in range(-8, 61)))
    assert said.count("\n") == 3
    assert said.splitlines()[0] == (
        "10 of 60 s: asked 10.0/s, achieved 10.0/s; answered 98, refused 1, failed 2, p95 0.123 s; "
        "queued 3, in flight 4; replicas: 2 ready, 1 starting"
    )


def test_a_load_maker_that_is_behind_and_the_wait_for_the_last_answers_are_said() -> None:
    slow = LoadFigures(100.0, 50.0, answered=0, refused=0, failed=0, p95_s=None)
    said = lines(70.0, figures=slow, seen=None)
    assert said == (
        "60 of 60 s, waiting for the last answers: asked 100.0/s, achieved 50.0/s (the load maker "
        "is behind); answered 0, refused 0, failed 0, p95 -\n"
    )


def test_on_a_terminal_one_block_changes() -> None:
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=100, legacy_windows=False)
    with ProgressDisplay(console, 60.0) as display:
        display.show_start()
        display.show(-2.0, FIGURES, None)
        display.show(1.0, LoadFigures(None, 7.0, 1, 0, 0, None), SEEN)
    said = file.getvalue()
    assert "the load maker starts" in said and "the load begins in 2 s" in said
    assert "1 of 60 s: 7.0 requests/s" in said
    assert "\x1b[2K" in said  # the block before was taken away
