"""Which images have a bento's Python."""

from __future__ import annotations

import pytest

from hotplate.serving.replica.errors import EnvironmentFailed
from hotplate.serving.replica.pods.runtimes import RuntimeImage, runtimes_of

OLD, NEW, NEXT = (
    RuntimeImage("3.11", "runtime:1"),
    RuntimeImage("3.11.9", "runtime:2"),
    RuntimeImage("3.12", "runtime:3"),
)


@pytest.mark.parametrize(
    ("version", "found"),
    [
        ("3.11", [NEW, OLD]),
        ("3.11.9", [NEW, OLD]),
        ("3.11.4", [OLD]),
        (" 3.12.1 ", [NEXT]),
        ("3", [NEW, OLD, NEXT]),
    ],
)
def test_those_with_that_python(version: str, found: list[RuntimeImage]) -> None:
    assert runtimes_of(version, [NEW, OLD, NEXT]) == found


@pytest.mark.parametrize("version", ["3.1", "3.10", "2", ">=3.11", "3.11.9.1", "3.11.10 "])
def test_none_names_those_that_there_are(version: str) -> None:
    with pytest.raises(EnvironmentFailed, match=r"it has 3\.11\.9, 3\.12\.") as failed:
        runtimes_of(version, [NEW, NEXT])
    assert version.strip() in str(failed.value)
    assert not failed.value.retry


def test_a_cluster_without_any_says_so() -> None:
    with pytest.raises(EnvironmentFailed, match="it has none"):
        runtimes_of("3.11", [])


def test_its_interpreter_has_its_minor_version_in_its_name() -> None:
    assert (NEW.interpreter, NEXT.interpreter) == ("python3.11", "python3.12")
