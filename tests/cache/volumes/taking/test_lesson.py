"""A lesson is for the replica's own like, and of what replicas say only what is valid counts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hotplate.cache.store.paths import NOTE
from hotplate.cache.volumes.taking.lesson import (
    BENTOS_KEPT,
    MOST_MODULES,
    Lesson,
    lesson_in,
    module_names,
    note_of,
    noted,
)
from hotplate.cache.volumes.ticket import Ticket, Use, VolumeModel

BERT, TINY = (VolumeModel(name, "v1", name[0] * 64) for name in ("bert", "dull"))
TICKET = Ticket(
    namespace="hotplate-t-acme",
    service_account="h-hello-1-hello",
    organization="acme",
    deployment="hello",
    revision=1,
    service="Hello",
    use=Use.REPLICA,
    bento="b" * 64,
    environment="e" * 64,
    models=(BERT, TINY),
)


@pytest.mark.parametrize(
    "change",
    [
        {"organization": "evil"},
        {"owner": "another of its name"},
        {"environment": "f" * 64},
        {"models": (BERT,)},
        {"models": ()},
    ],
)
def test_others_have_another_lesson(change: dict[str, Any]) -> None:
    assert note_of(replace(TICKET, **change), "H100") != note_of(TICKET, "H100")
    assert note_of(TICKET, "H200") != note_of(TICKET, "H100") != note_of(TICKET, "")


def test_revisions_and_deployments_of_the_same_have_the_same() -> None:
    same = replace(
        TICKET,
        namespace="x",
        service_account="x",
        deployment="x",
        revision=2,
        service="x",
        bento="c" * 64,
        models=(TINY, BERT),
    )
    assert note_of(same, "H100") == note_of(TICKET, "H100")
    assert NOTE.fullmatch(note_of(TICKET, ""))


def test_a_lesson_comes_back_as_it_was_noted() -> None:
    lesson = Lesson(("bentoml", "torch"), "c" * 64)
    assert lesson_in(noted(lesson, TICKET, {})) == lesson
    assert lesson_in(noted(Lesson(), TICKET, {})) == lesson_in(None) == Lesson()
    assert "manifest" not in noted(Lesson(("torch",)), TICKET, {})


def test_a_note_names_the_bentos_that_came_last() -> None:
    note: dict[str, Any] = {}
    for number in range(BENTOS_KEPT + 5):
        note = noted(Lesson(), replace(TICKET, bento=f"{number:064}"), note)
    assert note["bentos"] == [f"{number:064}" for number in range(5, BENTOS_KEPT + 5)]
    again = noted(Lesson(), replace(TICKET, bento=f"{50:064}"), note)
    assert again["bentos"][-1] == f"{50:064}" and len(again["bentos"]) == BENTOS_KEPT
    assert noted(Lesson(), TICKET, {"bentos": "x"})["bentos"] == [TICKET.bento]


@pytest.mark.parametrize(
    ("said", "names"),
    [
        pytest.param(["bentoml", "a.b_c"], ["bentoml", "a.b_c"], id="names"),
        pytest.param(["a/b", "../x", "a b", "", ".", "a.", 3, None, ["x"]], [], id="no names"),
        pytest.param(["x" * 300], [], id="long"),
        pytest.param({"bentoml": 1}, [], id="no list"),
        pytest.param(None, [], id="nothing"),
    ],
)
def test_only_names_of_modules_are_kept_of_what_a_replica_says(said: Any, names: list[str]) -> None:
    assert module_names(said) == names


def test_no_more_modules_are_kept_than_a_program_has() -> None:
    assert len(module_names(["a"] * (MOST_MODULES + 5))) == MOST_MODULES
