"""The calls of `bentoml secret`, and of `deploy --secret`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.control_plane.cloud import Cloud, Refused

ROOT = "/api/v1/org_secrets"
VALUE = "hf_value-that-no-answer-has"


async def make(cloud: Cloud, name: str = "hf", *keys: str, **content: Any) -> Any:
    items = [{"key": key, "value": f"{VALUE}-{key}"} for key in keys or ("TOKEN",)]
    body = {"name": name, "content": {"type": "env", "items": items, **content}}
    return await cloud.call("POST", f"{ROOT}?cluster=default", body)


async def refused(cloud: Cloud, status: int, said: str, *call: Any) -> None:
    with pytest.raises(Refused) as error:
        await cloud.call(*call)
    assert (error.value.status, said in error.value.message) == (status, True), error.value
    assert VALUE not in error.value.message


async def test_one_is_made_listed_changed_and_deleted_and_no_answer_has_its_value(
    cloud: Cloud,
) -> None:
    made = await make(cloud, "hf", "TOKEN", "USER", stage="all")
    assert made["content"] == {
        "type": "env",
        "items": [{"key": "TOKEN", "sub_path": ""}, {"key": "USER", "sub_path": ""}],
        "path": None,
        "stage": "all",
    }
    assert (made["name"], made["creator"]["name"], made["cluster"]["name"]) == (
        "hf",
        "ada",
        "default",
    )
    assert await cloud.call("GET", f"{ROOT}/hf") == made
    items = [{"key": "id", "sub_path": "a", "value": VALUE}]
    content = {"type": "mountfile", "path": "$BENTOML_HOME", "items": items}
    changed = await cloud.call(
        "PATCH", f"{ROOT}/hf", {"content": content, "description": "the hub"}
    )
    assert changed["content"] == {
        "type": "mountfile",
        "items": [{"key": "id", "sub_path": "a"}],
        "path": "$BENTOML_HOME",
        "stage": "runtime",
    }
    assert (changed["uid"], changed["description"]) == (made["uid"], "the hub")
    same = await cloud.call("PATCH", f"{ROOT}/hf", {"description": "the hub"})
    assert same["content"] == changed["content"]
    told = await cloud.call("GET", "/api/v1/hotplate/audit?action=secret.update")
    assert len(told["items"]) == 2
    assert VALUE not in json.dumps(told)
    changed = same
    listed = await cloud.call("GET", f"{ROOT}?count=10&q=&search=h&start=0&all=true")
    assert listed["items"] == [changed]
    assert await cloud.call("DELETE", f"{ROOT}/hf?cluster=default") == changed
    await refused(cloud, 404, "secret 'hf' does not exist", "GET", f"{ROOT}/hf")
    assert VALUE not in json.dumps([made, changed, listed])
    assert '"value"' not in json.dumps([made, changed, listed])


async def test_the_client_gets_all_of_them_although_it_asks_for_ten(cloud: Cloud) -> None:
    for number in range(12):
        await make(cloud, f"s{number:02}")
    all_of_them = await cloud.call("GET", f"{ROOT}?count=10&q=&search=&start=0&all=true")
    assert [item["name"] for item in all_of_them["items"]] == [f"s{n:02}" for n in range(12)]
    page = await cloud.call("GET", f"{ROOT}?count=5&start=10")
    assert (page["total"], [item["name"] for item in page["items"]]) == (12, ["s10", "s11"])
    assert (await cloud.call("GET", f"{ROOT}?search=s1"))["total"] == 2


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("../hf", {}, "name: '../hf' is not a name"),
        ("h\0f", {}, "name: it has a NUL character"),
        ("h" * 200, {}, "is not a name; a name has up to 128"),
        ("hf", {"items": VALUE}, "content.items: what is there (of type str) is not a list"),
        ("hf", {"type": "file"}, "content.type: there is no 'file'"),
        ("hf", {"items": [{"key": "A-B", "value": VALUE}]}, "'A-B' is no name of a variable"),
        ("hf", {"type": "mountfile", "path": "/etc"}, "is not below $BENTOML_HOME"),
        ("hf", {"items": [{"key": "A"}]}, "content.items[0].value: the key 'A' has none yet"),
        (
            "hf",
            {"items": [{"key": "A", "value": VALUE + "x" * (128 << 10)}]},
            "and a secret variable 130815 at most; make it a file",
        ),
    ],
)
async def test_what_cannot_be_one_is_a_sentence(
    cloud: Cloud, name: str, content: dict[str, Any], said: str
) -> None:
    given = {"type": "env", "items": [{"key": "A", "value": VALUE}], **content}
    await refused(cloud, 400, said, "POST", ROOT, {"name": name, "content": given})
    assert (await cloud.call("GET", ROOT))["total"] == 0


async def test_what_is_asked_wrongly_is_a_sentence(cloud: Cloud) -> None:
    await make(cloud)
    await refused(cloud, 409, "one of that name exists", "POST", ROOT, _body("hf"))
    await refused(cloud, 404, "'nope' does not exist", "PATCH", f"{ROOT}/nope", _body("nope"))
    await refused(cloud, 404, "'nope' does not exist", "DELETE", f"{ROOT}/nope")
    await refused(cloud, 404, "'HF' does not exist", "GET", f"{ROOT}/HF")
    await refused(cloud, 400, "is not a name", "GET", f"{ROOT}/..%2Fhf")
    await refused(cloud, 404, "NUL character", "DELETE", f"{ROOT}/h%00f")
    await refused(cloud, 400, "cluster: there is no 'eu'", "GET", f"{ROOT}/hf?cluster=eu")
    await refused(cloud, 400, "content: what is there", "PATCH", f"{ROOT}/hf", {"content": VALUE})
    await refused(cloud, 400, "body: ", "PATCH", f"{ROOT}/hf", None, VALUE.encode())


def _body(name: str) -> dict[str, Any]:
    items = [{"key": "TOKEN", "value": VALUE}]
    return {"name": name, "content": {"type": "env", "items": items}}


async def test_a_deployment_names_those_that_there_are_and_keeps_them(cloud: Cloud) -> None:
    await cloud.push_bento()
    await make(cloud)
    await make(cloud, "twin")
    await make(cloud, "other", "OTHER")
    deploy = ("POST", "/api/v2/deployments")
    body = {"name": "echo", "bento": "echo:v1"}
    await refused(cloud, 400, "secrets: there is no 'nope'", *deploy, body | {"secrets": ["nope"]})
    await refused(
        cloud,
        400,
        "secrets: 'hf' and 'twin' both have the key 'TOKEN'",
        *deploy,
        body | {"secrets": ["hf", "twin"]},
    )
    made = await cloud.deploy(secrets=["hf", "other"])
    config = made["latest_revision"]["targets"][0]["config"]
    assert config["secrets"] == ["hf", "other"]
    await refused(cloud, 409, "used by the deployment 'echo'", "DELETE", f"{ROOT}/hf")
    await cloud.call("PUT", "/api/v2/deployments/echo", {"bento": "echo:v1", **config})
    await cloud.call("PUT", "/api/v2/deployments/echo", {"bento": "echo:v1"})
    await cloud.call("DELETE", f"{ROOT}/hf")


async def test_one_that_a_version_of_a_canary_names_stays(cloud: Cloud) -> None:
    await cloud.push_bento()
    await make(cloud)
    version = {"bento": "echo:v1", "weight": 10, "secrets": ["hf"]}
    await cloud.deploy(canary={"route_type": "random", "versions": {"next": version}})
    await refused(cloud, 409, "used by the deployment 'echo';", "DELETE", f"{ROOT}/hf")
