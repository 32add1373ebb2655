"""What a bento's pods are made of; pure, but for the bento's description."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from hotplate.cache.volumes.ticket import Use, key_of, opened
from hotplate.deploy.errors import BeingPrepared, PrepareFailed
from hotplate.deploy.workload import Model
from hotplate.serving.replica.errors import BentoUnusable
from hotplate.serving.replica.inside.worker import GRACE_SHARE
from hotplate.serving.replica.pods.report import report_in
from hotplate.serving.replica.pods.runtime import BentoPodRuntime
from hotplate.serving.replica.secret_values import SecretValue
from tests.support.replica.bentos import write_bento
from tests.support.replica.pods import MANIFEST, OneBento, OneEnvironment
from tests.support.replica.replicas import SecretsOf, workload

KEY = key_of("cluster token")
SECRETS = SecretsOf(
    key=SecretValue("key", "file-secret", file="keys/key.txt"),
    token=SecretValue("TOKEN", "variable-secret"),
    index=SecretValue("INDEX", "build-secret", builds=True, runs=False),
)
SERVED = replace(
    workload(
        cpus=2.0,
        env={"GREETING": "hello"},
        secrets=("key", "token", "index"),
        models=(Model("tiny", "v1", MANIFEST),),
        depends={"Inner": "http://hotplate:revision-secret@inner.svc"},
    ),
    bento_manifest=MANIFEST,
)
PLACE = ("h-served-1-echo", "hotplate-t-acme")


@pytest.fixture
def bento(tmp_path: Path) -> OneBento:
    size = {"name": "SIZE", "value": "small"}
    return OneBento(write_bento(tmp_path / "bento", "", envs=[size]))


@pytest.fixture
def environment() -> OneEnvironment:
    return OneEnvironment()


@pytest.fixture
def runtime(bento: OneBento, environment: OneEnvironment) -> BentoPodRuntime:
    return BentoPodRuntime(
        bento,
        environment,
        KEY,
        secrets=SECRETS,
        node_selector=lambda given: {"size": f"{given.resources.cpus:g}"},
        tolerations=[{"key": "gpu", "operator": "Exists"}],
        api_access=lambda given, name: {"BENTO_CLOUD_API_KEY": f"{given.key.organization}/{name}"},
    )


async def test_the_same_state_gives_the_same_pod(runtime: BentoPodRuntime) -> None:
    spec = await runtime.pod_spec(SERVED, *PLACE)
    assert await runtime.pod_spec(SERVED, *PLACE) == spec
    assert spec.image == "runtime:3.11"
    assert spec.node_selector == {"size": "2"}
    assert list(spec.tolerations) == [{"key": "gpu", "operator": "Exists"}]
    assert spec.ready_path == "/readyz?of=itself"


async def test_what_is_secret_is_in_the_secret_alone(runtime: BentoPodRuntime) -> None:
    spec = await runtime.pod_spec(SERVED, *PLACE)
    public = json.dumps([spec.job, dict(spec.container_env), spec.command, spec.ticket])
    for value in ("file-secret", "variable-secret", "revision-secret", "build-secret", "hello"):
        assert value not in public
    assert spec.files == {"keys/key.txt": "file-secret"}
    assert (spec.env["TOKEN"], spec.env["GREETING"]) == ("variable-secret", "hello")
    assert "revision-secret" in spec.env["HOTPLATE_DEPENDS"]
    assert "INDEX" not in spec.env


async def test_a_pod_knows_its_folders_its_threads_and_its_defaults(
    runtime: BentoPodRuntime,
) -> None:
    env = (await runtime.pod_spec(SERVED, *PLACE)).env
    assert (env["OMP_NUM_THREADS"], env["SIZE"]) == ("2", "small")
    assert env["BENTO_CLOUD_API_KEY"] == "acme/h-served-1-echo"
    assert env["HOTPLATE_AGENT_SOCKET"] == "/hotplate/agent.sock"
    assert (env["HOTPLATE_TREES"], env["HOTPLATE_MODELS"]) == (
        "/hotplate/models",
        "/scratch/home/models",
    )
    assert env["PATH"].split(":")[0] == "/hotplate/env/bin"
    assert "HOTPLATE_REPLICA_UID" not in env, "a pod knows its own"
    assert "CUDA_VISIBLE_DEVICES" not in env, "what the plugin shows is left alone"


async def test_its_own_key_for_the_api_is_left_alone(runtime: BentoPodRuntime) -> None:
    served = replace(SERVED, env={"BENTO_CLOUD_API_KEY": "own"})
    assert (await runtime.pod_spec(served, *PLACE)).env["BENTO_CLOUD_API_KEY"] == "own"


async def test_its_ticket_is_for_its_own_files_and_account(runtime: BentoPodRuntime) -> None:
    ticket = opened((await runtime.pod_spec(SERVED, *PLACE)).ticket, KEY)
    assert (ticket.service_account, ticket.namespace) == PLACE
    assert (ticket.organization, ticket.deployment) == ("acme", "served")
    assert (ticket.revision, ticket.service, ticket.use) == (1, "Echo", Use.REPLICA)
    assert ticket.manifests == {MANIFEST}
    assert [(each.name, each.version) for each in ticket.models] == [("tiny", "v1")]


async def test_secrets_of_the_build_are_for_the_build(
    runtime: BentoPodRuntime, environment: OneEnvironment
) -> None:
    await runtime.pod_spec(SERVED, *PLACE)
    (given,) = environment.given
    assert dict(given.env) == {"INDEX": "build-secret"}


@pytest.mark.parametrize("trouble", [BeingPrepared("it is built"), PrepareFailed("it is not")])
async def test_an_environment_that_is_not_there_is_the_engines_to_show(
    runtime: BentoPodRuntime, environment: OneEnvironment, trouble: Exception
) -> None:
    environment.trouble = trouble
    with pytest.raises(type(trouble), match=str(trouble)):
        await runtime.pod_spec(SERVED, *PLACE)
    told: list[int] = []
    runtime.subscribe(lambda: told.append(1))
    environment.changed()
    assert told == [1]


async def test_a_value_that_nobody_has_given_is_asked_for(tmp_path: Path) -> None:
    lacking = OneBento(write_bento(tmp_path / "lacking", "", envs=[{"name": "REGION"}]))
    runtime = BentoPodRuntime(lacking, OneEnvironment(), KEY)
    with pytest.raises(BentoUnusable, match="REGION"):
        await runtime.pod_spec(replace(SERVED, secrets=()), *PLACE)


@pytest.mark.parametrize("timeout_s", [1.0, 60.0, 600.0, 86400.0])
async def test_no_request_is_cut_that_is_within_its_time(
    runtime: BentoPodRuntime, timeout_s: float
) -> None:
    served = replace(SERVED, request_timeout_s=timeout_s)
    job = (await runtime.pod_spec(served, *PLACE)).job
    assert int(job["stop_grace_s"] * GRACE_SHARE) >= timeout_s


def test_a_report_is_believed_as_far_as_it_can_be_true() -> None:
    methods = {"concurrency": None, "learns": "", "batch": 0, "only_tasks": False}
    said = {"phases": {"process": [0.1, 1.0], "init": [1.0, None]}, "methods": methods}
    report = report_in(json.dumps(said).encode())
    assert report is not None and report.about == methods
    assert [(each.name, each.start, each.end) for each in report.phases] == [
        ("process", 0.1, 1.0),
        ("init", 1.0, None),
    ]


@pytest.mark.parametrize(
    "span",
    [[2.0, 1.0], [-1.0, 1.0], ["x", 1.0], [1.0], 5, [0.0, 1e300], [float("nan"), 1.0], [None, 1]],
)
def test_a_phase_that_cannot_have_been_is_left_out(span: object) -> None:
    said = {"phases": {"process": span, "other": [0, 1]}, "methods": None}
    report = report_in(json.dumps(said).encode())
    assert report is not None and (report.phases, report.about) == ((), None)


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b"[" * 100_000, b'{"phases": 1}'])
def test_what_is_no_report_is_none(content: bytes) -> None:
    assert report_in(content) is None
