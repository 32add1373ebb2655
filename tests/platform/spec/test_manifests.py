from __future__ import annotations

from typing import Any

import pytest

from hotplate.platform.errors import Invalid
from hotplate.platform.spec.fields import Fields
from hotplate.platform.spec.manifests import checked_bento, checked_model
from tests.support.control_plane.cloud import MANIFEST, MODEL_MANIFEST

PAIR = [{"name": "Echo", "dependencies": [{"service": "Helper"}]}, {"name": "Helper"}]


def calls(*dependencies: dict[str, Any]) -> dict[str, Any]:
    return {"name": "Echo", "dependencies": list(dependencies)}


def bento(manifest: object) -> object:
    return checked_bento(Fields({"manifest": manifest}))


def model(manifest: object) -> object:
    return checked_model(Fields({"manifest": manifest}))


def test_what_the_client_sends_is_kept_as_it_is() -> None:
    by_name = calls({"deployment": "b", "cluster": "lab"}, {"deployment": ""}, {"url": "http://c"})
    for manifest in (MANIFEST, *({**MANIFEST, "services": each} for each in (PAIR, [by_name]))):
        assert bento(manifest) == manifest
    assert model(MODEL_MANIFEST) == MODEL_MANIFEST


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"size_bytes": None}, "manifest.size_bytes: it is missing"),
        ({"size_bytes": "10"}, "manifest.size_bytes: '10' is not a whole number"),
        ({"service": 5}, "manifest.service: 5 is not a string"),
        ({"services": ["Echo"]}, r"manifest.services\[0\]: 'Echo' is not an object"),
        ({"services": [{}]}, r"manifest.services\[0\].name: null is not a string"),
        ({"services": [{"name": "Echo"}] * 2}, r"services\[1\].name: 'Echo' is there twice"),
        ({"services": [{"name": "E" * 200}]}, "has 200 characters, more than 128"),
        ({"services": [{"name": "E\n"}]}, r"'E\\n' has a character that cannot be printed"),
        ({"services": [{"name": "Echo", "config": 3}]}, r"services\[0\].config: 3 is not"),
        ({"services": PAIR[:1]}, r"dependencies\[0\].service: the bento has no such service"),
        (
            {"services": [calls({"deployment": "A_b"})]},
            r"deployment: 'A_b' is not a deployment name",
        ),
        (
            {"services": [calls({"deployment": 3})]},
            r"dependencies\[0\].deployment: 3 is not a string",
        ),
        ({"services": [calls({"deployment": "b", "cluster": 3})]}, "cluster: 3 is not a string"),
        (
            {"services": [calls(*({"deployment": f"d{n}"} for n in range(101)))]},
            "services: they depend on 101 deployments by name, more than 100",
        ),
        ({"entry_service": "Ecko"}, "entry_service: the bento .* did you mean 'Echo'"),
        ({"models": [3]}, r"manifest.models\[0\]: 3 is not an object"),
        ({"models": ["bert"]}, r"manifest.models\[0\]: 'bert' is not a tag"),
        ({"services": [{"name": "Echo", "models": [{}]}]}, r"models\[0\].tag: null"),
        ({"envs": [{"value": "x"}]}, r"manifest.envs\[0\].name: null"),
        ({"schema": {"routes": ["x"]}}, r"manifest.schema.routes\[0\]: 'x' is not an object"),
    ],
)
def test_a_bento_that_nobody_could_serve_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(Invalid, match=message):
        bento({**MANIFEST, **change})


def test_a_model_that_the_client_could_not_read_is_refused() -> None:
    with pytest.raises(Invalid, match=r"manifest.api_version: null is not a string"):
        model({**MODEL_MANIFEST, "api_version": None})
