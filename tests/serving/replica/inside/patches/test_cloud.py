"""The variables by which BentoCloud tells a replica of its deployment: seen by the service's own
code and by nothing of BentoML that they would mislead."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import bentoml
import pytest

from hotplate.serving.replica.inside.patches.cloud import READERS
from hotplate.serving.replica.inside.reserved import OURS, RESERVED
from hotplate.serving.replica.variables import cloud_variables
from tests.support.replica.bentos import write_bento
from tests.support.replica.replicas import Replica, started, workload

NOWHERE = "http://127.0.0.1:1"
CLOUD = cloud_variables("echo", "default", NOWHERE)
ECHO = """
    import os, subprocess, sys
    import bentoml

    def seen():
        return {name: value for name, value in os.environ.items() if "DEPLOYMENT_" in name}

    AT_IMPORT = seen()
    CHILD = "import json, os, sys; json.dump(dict(os.environ), sys.stdout)"

    @bentoml.service(envs=[{"name": "BENTOML_PORT", "value": "3"}])
    class Back:
        @bentoml.api
        def headers(self, ctx: bentoml.Context) -> dict:
            return {name: value for name, value in ctx.request.headers.items() if "yatai" in name}

        @bentoml.task
        def toil(self, text: str) -> str:
            return text.upper()

    @bentoml.service
    class Echo:
        back = bentoml.depends(Back)

        def __init__(self):
            self.at_init = seen()

        @bentoml.api
        def variables(self) -> dict:
            child = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True)
            return {"import": AT_IMPORT, "init": self.at_init, "handler": seen(),
                    "child": child.stdout}

        @bentoml.api
        async def again(self, text: str) -> str:
            return await self.to_async.once(text=text)

        @bentoml.api
        def once(self, text: str) -> str:
            return text.upper()

        @bentoml.api
        async def hosts(self) -> list[str]:
            return await Back.get_hosts()

        @bentoml.api
        async def headers(self) -> dict:
            return await self.back.to_async.headers()

        @bentoml.task
        def toil(self, text: str) -> str:
            return text.upper()
"""


@pytest.fixture(scope="module")
def back(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replica]:
    folder = tmp_path_factory.mktemp("back")
    with started(
        folder, _bento(folder), workload("Back", entry=False, cloud=CLOUD), warm=True
    ) as replica:
        replica.get("/readyz")
        yield replica


@pytest.fixture(scope="module", params=[1, 2], ids=["one worker", "two workers"])
def echo(
    request: pytest.FixtureRequest, back: Replica, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Replica]:
    folder = tmp_path_factory.mktemp("echo")
    config = {"workers": request.param}
    served = workload(cloud=CLOUD, config=config, depends={"Back": back.url}, env=dict(STALE))
    with started(folder, _bento(folder), served) as replica:
        replica.get("/readyz")
        yield replica


STALE = {"BENTOCLOUD_DEPLOYMENT_URL": "http://mine"}
"""Of a deployment that was stored before such a name was refused."""


def _bento(folder: Path) -> Path:
    return write_bento(folder / "bento", ECHO, services=[{"name": "Echo"}, {"name": "Back"}])


def test_the_services_code_and_its_children_see_them(echo: Replica) -> None:
    seen = echo.call("variables")
    child = json.loads(seen.pop("child"))
    assert seen == {"import": CLOUD, "init": CLOUD, "handler": CLOUD}
    assert CLOUD.items() <= child.items()
    assert "BENTOCLOUD_DEPLOYMENT_URL is the platform's" in echo.log.read_text()


def test_a_services_calls_to_itself_stay_in_the_replica(echo: Replica) -> None:
    assert echo.get("/again", b'{"text": "a"}') == b"A"


def test_a_dependency_is_where_the_gateway_has_it(echo: Replica, back: Replica) -> None:
    assert set(echo.call("hosts")) == {back.url.removeprefix("http://")}


def test_a_dependency_is_told_who_calls(echo: Replica) -> None:
    assert echo.call("headers") == {
        "yatai-bento-deployment-name": "echo",
        "yatai-bento-deployment-namespace": "default",
    }


def test_tasks_that_a_replica_keeps_work(echo: Replica, back: Replica) -> None:
    for replica in (echo, back):
        assert replica.get("/toil", b'{"text": "a"}') == b"A"
        task = replica.call("toil/submit", text="b")
        assert b"status" in replica.get(f"/toil/status?task_id={task['task_id']}")


def test_a_service_that_others_call_says_which_of_its_variables_count_for_nothing(
    back: Replica,
) -> None:
    assert "BENTOML_PORT is the platform's" in back.log.read_text()


def test_no_other_part_of_bentoml_reads_the_url() -> None:
    """A BentoML that does needs a look; `bentoml.serving` asks whether it is in a container."""
    site = Path(bentoml.__file__).parents[1]
    readers = {
        ".".join(path.relative_to(site).with_suffix("").parts)
        for package in ("bentoml", "bentoml_cli", "_bentoml_impl", "_bentoml_sdk")
        for path in (site / package).rglob("*.py")
        if "BENTOCLOUD_DEPLOYMENT_" in path.read_text()
    }
    assert readers == {*READERS, "bentoml.serving"}


def test_the_readme_lists_what_is_reserved() -> None:
    readme = Path("serving/README.md").read_text()
    assert not [name for name in (*RESERVED, OURS) if f"`{name}" not in readme]
