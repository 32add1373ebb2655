from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from hotplate.platform.api.bentocloud.deployments import public_url
from hotplate.platform.api.web.settings import ApiSettings
from hotplate.platform.store.records import DemandRecord
from tests.support.control_plane.cloud import (
    MANIFEST,
    MODEL_MANIFEST,
    Cloud,
    Refused,
    tar_of,
    versions,
)
from tests.support.control_plane.controller_fake import FakeController

ONE = "/api/v2/deployments/echo"


@pytest.fixture(autouse=True)
async def bento(cloud: Cloud) -> None:
    await cloud.push_bento()


async def test_a_deployment_is_made_at_once_and_the_first_look_waits(
    cloud: Cloud, controller: FakeController
) -> None:
    made = await cloud.deploy()
    assert made["status"] == "deploying"
    assert controller.asked == []
    assert (await cloud.call("GET", ONE))["status"] == "running"
    assert len(controller.asked) == 1
    await cloud.call("GET", ONE)
    assert len(controller.asked) == 1


async def test_a_deployment_is_shown_as_the_client_reads_it(cloud: Cloud) -> None:
    made = await cloud.deploy(
        labels=[{"key": "team", "value": "a"}], envs=[{"name": "A", "value": "1"}]
    )
    assert made["urls"] == ["http://127.0.0.1:7100"]
    assert made["cluster"]["name"] == "default"
    assert made["cluster"]["is_first"] is True
    (target,) = made["latest_revision"]["targets"]
    assert target["name"] == "main"
    assert target["config"]["envs"] == [{"name": "A", "value": "1"}]
    assert target["config"]["labels"] == made["labels"] == [{"key": "team", "value": "a"}]
    assert target["bento"]["name"] == target["bento"]["version"] == "v1"
    assert target["bento"]["repository"]["name"] == "echo"
    assert target["bento"]["manifest"] == MANIFEST


async def test_a_deployment_knows_the_url_that_whoever_asked_for_it_was_shown(
    cloud: Cloud,
) -> None:
    settings = ApiSettings(scheme="https")
    made = await cloud.deploy()
    row = cloud.store.deployments.find(cloud.user.organization.id, "echo")
    assert public_url(row, ApiSettings()) == made["urls"][0]
    asked = {"bento": "echo:v1", "envs": [{"name": "A", "value": "1"}]}
    async with cloud.http.put(ONE, json=asked, headers={"Host": "[::1]:3000"}) as answer:
        assert (await answer.json())["urls"] == ["http://[::1]:7100"]
    row = cloud.store.deployments.find(cloud.user.organization.id, "echo")
    assert public_url(row, settings) == "https://[::1]:7100"
    assert public_url(row, replace(settings, advertise_host="gpu.lab")) == "https://gpu.lab:7100"
    assert public_url(replace(row, host=""), settings) == "https://localhost:7100"


async def test_a_reserved_variable_is_refused_at_create_and_update(cloud: Cloud) -> None:
    envs = [{"name": "BENTOML_HOME", "value": "/mine"}]
    with pytest.raises(Refused, match="'BENTOML_HOME' is the platform's own") as refused:
        await cloud.deploy(envs=envs)
    assert refused.value.status == 400
    await cloud.deploy()
    with pytest.raises(Refused, match="'BENTOML_HOME' is the platform's own"):
        await cloud.call("PUT", ONE, {"bento": "echo:v1", "envs": envs})


async def test_a_name_that_is_taken_is_a_conflict(cloud: Cloud) -> None:
    await cloud.deploy()
    with pytest.raises(Refused, match="'echo' already exists") as refused:
        await cloud.deploy()
    assert refused.value.status == 409


async def test_of_two_at_once_one_gets_the_name(cloud: Cloud) -> None:
    results = await asyncio.gather(cloud.deploy(), cloud.deploy(), return_exceptions=True)
    assert sorted(isinstance(result, Refused) for result in results) == [False, True]


async def test_a_deployment_without_a_name_gets_one(cloud: Cloud) -> None:
    first, second = await cloud.deploy(None), await cloud.deploy(None)
    assert first["name"].startswith("echo-")
    assert first["name"] != second["name"]
    assert first["urls"] != second["urls"]


async def test_a_bento_without_version_is_its_latest_uploaded_one(cloud: Cloud) -> None:
    await cloud.register("bento", "echo", "v2")
    made = await cloud.deploy(bento="echo")
    assert made["latest_revision"]["targets"][0]["bento"]["version"] == "v1"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"bento": "echo:v9"}, "bento: bento 'echo:v9' does not exist here"),
        ({"bento": "other"}, "bento: no version of 'other' is uploaded"),
        ({"bento": ""}, "bento: '' is not a string"),
        ({"name": "Not_A_Name"}, "name: 'Not_A_Name' is not a deployment name"),
        ({"name": "a" * 64}, "63"),
    ],
)
async def test_what_cannot_be_deployed_is_refused_with_the_reason(
    cloud: Cloud, fields: dict[str, str], message: str
) -> None:
    with pytest.raises(Refused, match=message) as refused:
        await cloud.deploy(**fields)
    assert refused.value.status == 400


@pytest.mark.parametrize("revision", ["/home/op/.config", "../../x", "refs/pr/1", "a\nb"])
async def test_a_bento_whose_hub_model_is_at_no_revision_is_refused(
    cloud: Cloud, revision: str
) -> None:
    about = {"model_id": "x/y", "revision": revision, "endpoint": "https://huggingface.co"}
    model = {"tag": "hf:abc", "registry": "huggingface", "metadata": about}
    await cloud.push_bento(version="v2", more=f"models: {json.dumps([model])}")
    with pytest.raises(Refused, match="is no revision of x/y") as refused:
        await cloud.deploy(bento="echo:v2")
    assert refused.value.status == 400


async def test_a_bento_whose_model_is_at_a_hub_that_nobody_has_listed_is_refused(
    cloud: Cloud,
) -> None:
    about = {"model_id": "x/y", "revision": "1f" * 20, "endpoint": "http://169.254.169.254"}
    model = {"tag": "hf:abc", "registry": "huggingface", "metadata": about}
    await cloud.push_bento(version="v2", more=f"models: {json.dumps([model])}")
    with pytest.raises(Refused, match=r"listed in model_endpoints of \[platform\]") as refused:
        await cloud.deploy(bento="echo:v2")
    assert refused.value.status == 400


async def test_a_bento_that_is_not_uploaded_cannot_be_deployed(cloud: Cloud) -> None:
    await cloud.register("bento", "echo", "v2")
    with pytest.raises(Refused, match=r"'echo:v2' is not uploaded \(upload pending\)"):
        await cloud.deploy(bento="echo:v2")


async def test_every_model_of_the_bento_must_be_usable(cloud: Cloud) -> None:
    manifest = MANIFEST | {"models": ["bert:1", "org--hub:abc"]}
    await cloud.push_bento("echo", "v2", manifest)
    with pytest.raises(Refused, match="model 'bert:1' does not exist here"):
        await cloud.deploy(bento="echo:v2")
    await cloud.register("model", "bert", "1")
    with pytest.raises(Refused, match="model 'bert:1' is not uploaded"):
        await cloud.deploy(bento="echo:v2")
    await cloud.push_parts("bert", "1", [tar_of({"model.yaml": "name: bert\nversion: '1'\n"})])
    hub = MODEL_MANIFEST | {"metadata": {"registry": "huggingface", "model_id": "org/hub"}}
    await cloud.register("model", "org--hub", "abc", hub)
    await cloud.deploy(bento="echo:v2")


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        (
            "hotplate/may_run_twice",
            "true",
            r"labels\[1\]\.key: there is no setting 'hotplate/may_run_twice'; "
            "did you mean 'hotplate/may-run-twice'",
        ),
        (
            "hotplate/may-run-twice",
            "yes",
            r"labels\[1\]\.value: hotplate/may-run-twice is 'true' or 'false', not 'yes'",
        ),
        (
            "hotplate/task-drain-s",
            "1h",
            "hotplate/task-drain-s is a number of seconds from 0 to 86400, not '1h'",
        ),
        (
            "hotplate/price",
            "-1",
            "hotplate/price is a number of GPU-seconds from 0 on, not '-1'",
        ),
        (
            "hotplate/schedule",
            "0 8 31 2 *=1",
            "'0 8 31 2 .=1' never comes: no month that it names has 31 days",
        ),
        (
            "hotplate/organization-header",
            "X Organization",
            "hotplate/organization-header is the name of a header field, not 'X Organization'",
        ),
        ("hotplate/may-run-twice", True, "True is not a string"),
    ],
)
async def test_a_label_of_ours_that_is_wrong_is_refused_with_a_sentence(
    cloud: Cloud, key: str, value: object, sentence: str
) -> None:
    labels = [{"key": "team", "value": "yes"}, {"key": key, "value": value}]
    with pytest.raises(Refused, match=sentence) as refused:
        await cloud.deploy(labels=labels)
    assert refused.value.status == 400
    await cloud.deploy(labels=[{"key": "hotplate/may-run-twice", "value": "true"}])
    with pytest.raises(Refused, match=sentence):
        await cloud.call("PUT", ONE, {"bento": "echo:v1", "labels": labels})


async def test_an_update_makes_a_revision_and_keeps_labels_and_port(cloud: Cloud) -> None:
    made = await cloud.deploy(labels=[{"key": "a", "value": "b"}])
    body = {"bento": "echo:v1", "labels": None, "envs": [{"name": "A", "value": "1"}]}
    changed = await cloud.call("PUT", ONE, body)
    assert changed["latest_revision"]["name"] == "2"
    assert changed["labels"] == made["labels"]
    assert changed["urls"] == made["urls"]
    assert changed["status"] == "deploying"
    assert (await cloud.call("GET", ONE))["status"] == "running"


async def test_an_update_leaves_out_what_was_set_for_a_service_that_has_gone(cloud: Cloud) -> None:
    """The client sends it back with the rest; a name that was never one stays a mistake."""
    await cloud.deploy()
    renamed = {"entry_service": "Voice", "services": [{"name": "Voice", "config": {}}]}
    await cloud.push_bento("echo", "v2", MANIFEST | renamed)
    kept = {"Echo": {"scaling": {"min_replicas": 1, "max_replicas": 2}}}
    with pytest.raises(Refused, match=r"services\.Vioce: the bento has no such service"):
        await cloud.call("PUT", ONE, {"bento": "echo:v2", "services": {**kept, "Vioce": {}}})
    changed = await cloud.call("PUT", ONE, {"bento": "echo:v2", "services": kept})
    (target,) = changed["latest_revision"]["targets"]
    assert list(target["config"]["services"]) == ["Voice"]


async def test_an_update_without_a_change_makes_no_revision(
    cloud: Cloud, controller: FakeController
) -> None:
    made = await cloud.deploy()
    await controller.settled()
    target = made["latest_revision"]["targets"][0]
    same = await cloud.call("PUT", ONE, {"bento": "echo:v1", **target["config"]})
    assert same["latest_revision"]["name"] == "1"
    assert same["status"] == "running"


async def test_an_update_without_a_change_tries_a_failed_roll_out_again(
    cloud: Cloud, controller: FakeController
) -> None:
    controller.failure = "Echo: no module named torch"
    await cloud.deploy()
    failed = await cloud.call("GET", ONE)
    assert (failed["status"], failed["reason"]) == ("failed", controller.failure)
    assert failed["log_tail"] == ["last line"]
    controller.failure = ""
    again = await cloud.call("PUT", ONE, {"bento": "echo:v1"})
    assert (again["status"], again["latest_revision"]["name"]) == ("deploying", "2")
    assert (await cloud.call("GET", ONE))["status"] == "running"


async def test_a_terminated_deployment_is_started_by_an_update(
    cloud: Cloud, controller: FakeController
) -> None:
    await cloud.deploy()
    await cloud.call("GET", ONE)
    assert (await cloud.call("POST", f"{ONE}/terminate"))["status"] == "terminating"
    await controller.settled()
    assert (await cloud.call("GET", ONE))["status"] == "terminated"
    assert (await cloud.call("PUT", ONE, {"bento": "echo:v1"}))["status"] == "deploying"
    assert (await cloud.call("GET", ONE))["status"] == "running"


async def test_a_void_update_rolls_the_same_out_again(cloud: Cloud) -> None:
    await cloud.deploy()
    again = await cloud.call("PUT", f"{ONE}/void_update")
    assert again["latest_revision"]["name"] == "2"


async def test_a_deleted_deployment_is_answered_once_more_and_its_name_is_free(
    cloud: Cloud, controller: FakeController
) -> None:
    await cloud.deploy()
    assert (await cloud.call("DELETE", ONE))["name"] == "echo"
    with pytest.raises(Refused, match="404"):
        await cloud.call("GET", ONE)
    await cloud.deploy()
    await controller.settled()
    assert (await cloud.call("GET", ONE))["status"] == "running"


async def test_the_list_is_filtered_by_label_and_cut_by_count(cloud: Cloud) -> None:
    root = "/api/v2/deployments?cluster=&all=true&search=&start="
    for name, team in (("one", "a"), ("two", "b"), ("three", "a")):
        await cloud.deploy(name, labels=[{"key": "team", "value": team}])
    everything = await cloud.call("GET", f"{root}&q=&count=")
    assert [item["name"] for item in everything["items"]] == ["three", "two", "one"]
    assert everything["total"] == 3
    labelled = await cloud.call("GET", f"{root}&q=label:team=a&count=1")
    assert [item["name"] for item in labelled["items"]] == ["three"]
    assert labelled["total"] == 2
    with pytest.raises(Refused, match=r"start: '9{79} is not a whole number") as refused:
        await cloud.call("GET", f"/api/v2/deployments?start={'9' * 5000}")
    assert refused.value.status == 400


async def test_a_cluster_that_is_not_ours_is_refused(cloud: Cloud) -> None:
    await cloud.deploy()
    await cloud.call("GET", f"{ONE}?cluster=default")
    with pytest.raises(Refused, match="cluster: there is no 'europe'") as refused:
        await cloud.call("GET", f"{ONE}?cluster=europe")
    assert refused.value.status == 400


async def test_organizations_do_not_see_each_other(cloud: Cloud) -> None:
    await cloud.deploy()
    async with Cloud(cloud.server, cloud.store, organization="rival") as rival:
        assert (await rival.call("GET", "/api/v2/deployments"))["items"] == []
        for method, path in (("GET", ONE), ("DELETE", ONE), ("POST", f"{ONE}/terminate")):
            with pytest.raises(Refused, match="404"):
                await rival.call(method, path)
        with pytest.raises(Refused, match="404"):
            await rival.call("GET", f"{versions('bento', 'echo')}/v1")
        with pytest.raises(Refused, match="does not exist here"):
            await rival.deploy("mine")
        await rival.push_bento()
        await rival.deploy()
    assert len((await cloud.call("GET", "/api/v2/deployments"))["items"]) == 1


async def test_lists_are_filtered_by_words_and_paged(cloud: Cloud) -> None:
    for name in ("red-1", "red-2", "blue-1", "per"):
        labels = [{"key": "team", "value": "a b"}, {"key": "stage", "value": "test"}]
        await cloud.deploy(name, labels=labels if name == "red-1" else [])

    async def names(query: str) -> list[str]:
        listed = await cloud.call("GET", f"/api/v2/deployments?cluster=&{query}")
        assert all(
            item["latest_revision"]["targets"][0]["bento"]["manifest"] is None
            for item in listed["items"]
        )
        ours = await cloud.call("GET", f"/api/v1/hotplate/deployments?{query}")
        assert [item["name"] for item in ours] == [item["name"] for item in listed["items"]]
        return [item["name"] for item in listed["items"]]

    assert await names("q=") == ["per", "blue-1", "red-2", "red-1"]
    assert await names("q=RED") == ["red-2", "red-1"]
    assert await names("q=red+d-1") == ["red-1"]
    assert await names("q=echo:v") == ["per", "blue-1", "red-2", "red-1"]
    assert await names("q=label:stage=test") == ["red-1"]
    assert await names("q=label:stage=test+label:stage=other") == []
    assert await names("q=label:stage=other+label:stage=test") == []
    assert await names("q=label:stage=te") == []
    assert await names("search=blue") == ["blue-1"]
    assert await names("search=%25") == await names("search=_") == []
    assert await names("search=a+b") == []
    assert await names("start=1&count=2") == ["blue-1", "red-2"]
    assert await names("start=4") == await names("count=0") == []
    assert await names("count=100000000000000000") == ["per", "blue-1", "red-2", "red-1"]
    with pytest.raises(Refused, match="NUL") as refused:
        await cloud.call("GET", "/api/v2/deployments?q=%00")
    assert refused.value.status == 400

    bentos = "/api/v1/bentos?start=0&count="
    assert (await cloud.call("GET", f"{bentos}&q=echo"))["total"] == 1
    assert (await cloud.call("GET", f"{bentos}&q=other"))["items"] == []
    assert (await cloud.call("GET", f"{bentos}&q=label:a=b"))["total"] == 0


async def test_instance_types_are_a_bare_list(cloud: Cloud) -> None:
    types = await cloud.call("GET", "/api/v1/instance_types?cluster=")
    assert [item["display_name"] for item in types] == ["cpu.1", "cpu.2"]
    assert {"uid", "name", "resource_type", "labels", "created_at"} <= types[0].keys()


async def test_our_own_pages_tell_what_happened_and_why(cloud: Cloud) -> None:
    await cloud.deploy()
    await cloud.call("GET", ONE)
    own = "/api/v1/hotplate/deployments"
    (summary,) = await cloud.call("GET", own)
    assert (summary["name"], summary["status"], summary["serving"]) == ("echo", "running", 1)
    detail = await cloud.call("GET", f"{own}/echo")
    assert [revision["outcome"] for revision in detail["revisions"]] == ["ready"]
    events = await cloud.call("GET", f"{own}/echo/events")
    assert [event["kind"] for event in events] == ["RolloutReady", "Created"]
    assert await cloud.call("GET", f"{own}/echo/decisions?count=") == []
    assert await cloud.call("GET", f"{own}/echo/decisions?until=2026-01-31T14:05:30") == []
    with pytest.raises(Refused, match="until: 'noon' is not a time"):
        await cloud.call("GET", f"{own}/echo/decisions?until=noon")
    with pytest.raises(Refused, match="is not a time"):
        await cloud.call("GET", f"{own}/echo/decisions?until=0001-01-01T00:00:00%2B14:00")
    assert await cloud.call("GET", f"{own}/echo/log") == []
    assert await cloud.call("GET", f"{own}/echo/cold_starts") == []
    logs = await cloud.call("GET", f"{own}/echo/logs?replica=r7&lines=5")
    assert logs == {"r7": ["ready"]}


async def test_the_log_has_what_is_not_written_yet_once(
    cloud: Cloud, controller: FakeController
) -> None:
    await cloud.deploy()
    (row,) = cloud.store.deployments.of_organization(cloud.user.organization.id)
    began = datetime.now(UTC)
    told = [
        DemandRecord(began + timedelta(seconds=n), 1, "Echo", n, 0, 0, 0.25, 1, 0) for n in range(3)
    ]
    cloud.store.history.add_demands(row.id, told[:2])
    controller.unwritten += told[1:]  # the second one is written in this moment
    log = await cloud.call("GET", "/api/v1/hotplate/deployments/echo/log")
    assert [(one["kind"], one["arrived"]) for one in log] == [("demand", n) for n in range(3)]


async def test_a_body_that_is_not_json_is_refused(cloud: Cloud) -> None:
    for data in (b"{", b"[]", b"\xff", b'{"a": NaN}', b'{"a": "\\ud800"}', b"[" * 100_000):
        with pytest.raises(Refused, match="body") as refused:
            await cloud.call("POST", "/api/v2/deployments", data=data)
        assert refused.value.status == 400
