"""`make promises`: each row has a command that exists, and says what came of it."""

from __future__ import annotations

import argparse
import importlib
import shlex
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path

import pytest

from loadtests import bench, promises, storm
from loadtests.promises import LONG, PROMISES, Promise, Proof, command_of, markdown_of, prove

ROOT = Path(__file__).parents[2]
TRIED = [(promise, quick) for promise in PROMISES for quick in (False, True)]


@pytest.mark.parametrize(("promise", "quick"), TRIED, ids=lambda value: str(value)[:60])
def test_the_command_of_a_promise_exists(promise: Promise, quick: bool) -> None:
    if quick and promise.quick == LONG:
        return
    program, *arguments = shlex.split(command_of(promise, quick)) or [""]
    match promise.means:
        case "storm":
            assert arguments[0] in storm.NAMES
            parser = argparse.ArgumentParser(exit_on_error=False)
            importlib.import_module(f"loadtests.storms.{arguments[0]}").add_flags(parser)
            parser.parse_args(arguments[1:])
        case "bench":
            name, _, part = arguments[0].partition(".")
            assert name in bench.NAMES
            if part:
                assert part in importlib.import_module(f"loadtests.benchmarks.{name}").PARTS
        case "module":
            assert find_spec(arguments[0])
        case "later":
            assert not program


def test_every_promise_of_the_list_is_there_and_on_the_page() -> None:
    numbers = {number for promise in PROMISES for number in promise.number.split(", ")}
    assert numbers == {str(number) for number in range(1, 20)}
    page = (ROOT / "loadtests" / "README.md").read_text()
    assert not [promise.what for promise in PROMISES if promise.what not in page]


def test_a_storm_that_holds_proves_its_promise() -> None:
    promise = Promise("12", "a queue", "0", "storm", "queue --steps 60", figures=("violations",))
    proof = prove(promise, quick=False)
    assert (proof.holds, proof.got) == ("yes", "violations: 0")
    page = markdown_of([proof], False, datetime(2026, 1, 31, tzinfo=UTC))
    assert "| 12 | a queue | 0 | yes | violations: 0 |" in page
    assert "`loadtests/storm.py queue --steps 60`" in page


def test_a_command_that_fails_proves_nothing() -> None:
    proof = prove(Promise("1", "nothing", "", "bench", "gateway.nothing"), quick=False)
    assert proof.holds == "NO"
    assert "is none of" in proof.got


def test_a_broken_guarantee_is_the_first_thing_shown() -> None:
    promise = Promise("5", "kills", "all hold", "storm", "kills", figures=("points",))
    verdict = {"figures": {"points tried": 3, "other": 1}, "broken": ["a | was lost", "b"]}
    proof = promises._of_verdict(promise, verdict, 1.0)
    assert proof == Proof(promise, "a | was lost; points tried: 3", "NO", 1.0)
    assert "a \\| was lost" in markdown_of([proof], True, datetime(2026, 1, 31, tzinfo=UTC))
