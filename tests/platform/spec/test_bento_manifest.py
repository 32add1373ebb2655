"""Which services of a bento run here, and which deployments they call by name."""

from __future__ import annotations

from typing import Any

import pytest

from hotplate.platform.spec.bento_manifest import (
    NamedDeployment,
    called_services,
    dependency_services,
    named_deployments,
    service_names,
)


def bento(**dependencies: list[dict[str, Any]]) -> dict[str, Any]:
    services = [{"name": name, "dependencies": called} for name, called in dependencies.items()]
    return {"entry_service": "Chat", "services": services}


@pytest.mark.parametrize(
    ("manifest", "run"),
    [
        (bento(Chat=[{"service": "A"}], A=[{"service": "B"}], B=[]), ["A", "B"]),
        (bento(Chat=[{"service": "A", "deployment": "a"}], A=[]), []),
        (bento(Chat=[{"service": "A", "url": "http://a"}], A=[]), []),
        # What it calls there runs there.
        (bento(Chat=[{"service": "A", "deployment": "a"}], A=[{"service": "B"}], B=[]), []),
        # One that another service calls here runs here.
        (
            bento(
                Chat=[{"service": "A", "deployment": "a"}, {"service": "B"}],
                B=[{"service": "A"}],
                A=[],
            ),
            ["B", "A"],
        ),
        # Nobody says who calls it: it runs, as ever.
        (bento(Chat=[], A=[]), ["A"]),
        (bento(Chat=[{"service": "Chat"}]), []),
    ],
)
def test_a_service_that_is_called_elsewhere_does_not_run_here(
    manifest: dict[str, Any], run: list[str]
) -> None:
    assert sorted(dependency_services(manifest)) == sorted(run)
    assert set(service_names(manifest)) == {each["name"] for each in manifest["services"]}


def test_what_is_called_by_name_is_no_service_of_the_bento() -> None:
    calls = [{"service": "A", "deployment": "a"}, {"service": "B"}, {"url": "http://c"}]
    assert called_services({"name": "Chat", "dependencies": calls}) == ["B"]


def test_deployments_are_named_once_with_their_cluster() -> None:
    manifest = bento(
        Chat=[{"deployment": "b"}, {"deployment": "a", "cluster": "lab"}, {"deployment": ""}],
        Other=[{"deployment": "b"}],
    )
    assert named_deployments(manifest) == [NamedDeployment("b"), NamedDeployment("a", "lab")]
    assert named_deployments({}) == []
