"""What ends, hangs or is refused beside the release, and what its users notice of it."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster.calls import Calls, calls_at
from tests.cluster.helm import RELEASE
from tests.cluster.installation import Installation
from tests.cluster.kubectl import Kubectl
from tests.cluster.pod_network import silenced
from tests.cluster.processes import kill
from tests.cluster.release import Release
from tests.cluster.told import eventually, page
from tests.support.patience import until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]
NAMESPACE = f"{RELEASE}-t-default"
RATE_PER_S = 100.0
FAULT_S = 6.0
"""How long something is away; a storm lets it be away for longer."""
PUT_RIGHT_S = 30.0
NOTICED_S = 20.0
"""How long the other side of a connection may be silent to probes."""
API_SERVICE_PORT = 443
BACK_S = 60.0


@pytest.fixture
def outage(cluster: Installation, kubectl: Kubectl) -> Iterator[Installation]:
    """Whatever a test leaves killed or stopped is as it was afterwards."""
    yield cluster
    cluster.cont("apiserver")
    cluster.start("apiserver")
    kubectl.wait("get", "--raw=/readyz", timeout_s=60)


async def called_for(calls: Calls, seconds: float) -> None:
    """Returns once they were called that long, and answered since then."""
    await asyncio.sleep(seconds)
    soon = len(calls.answered) + 50
    await until(lambda: len(calls.answered) >= soon)


def service_of_hello(kubectl: Kubectl) -> str:
    """As `service/NAME`; it has the number of the revision that serves."""
    whose = "--selector=hotplate.dev/deployment=hello-to-all"
    said = kubectl("get", "service", whose, f"--namespace={NAMESPACE}", "--output=name")
    (name,) = said.split()
    return name


def control_plane_pod(kubectl: Kubectl) -> dict[str, Any]:
    which = ("--selector=app.kubernetes.io/name=hotplate-control-plane", f"--namespace={RELEASE}")
    (pod,) = json.loads(kubectl("get", "pods", *which, "--output=json"))["items"]
    return dict(pod)


def restarts(pod: dict[str, Any]) -> int:
    return int(pod["status"]["containerStatuses"][0]["restartCount"])


@pytest.mark.parametrize("fault", ["kill", "stop"])
async def test_ready_replicas_answer_without_an_api_server(
    installed: Release, outage: Installation, kubectl: Kubectl, hello: str, fault: str
) -> None:
    """Killed, or so slow that it answers nothing; and the engine acts again when it is back."""
    async with calls_at(RATE_PER_S, hello) as calls:
        await asyncio.to_thread(getattr(outage, fault), "apiserver")
        await called_for(calls, FAULT_S)
        await asyncio.to_thread(outage.start if fault == "kill" else outage.cont, "apiserver")
        await asyncio.to_thread(kubectl.wait, "get", "--raw=/readyz", timeout_s=60)
        # What the engine does next: it makes anew what somebody deletes.
        service = (await asyncio.to_thread(service_of_hello, kubectl), f"--namespace={NAMESPACE}")
        await asyncio.to_thread(kubectl, "delete", *service)
        await eventually(
            lambda: bool(kubectl("get", *service, "--ignore-not-found", "--output=name")),
            PUT_RIGHT_S,
        )
    assert calls.failures == []


async def test_watches_whose_server_has_vanished_are_noticed_and_begun_anew(
    installed: Release, kubectl: Kubectl, hello: str
) -> None:
    """Nothing is sent while a watch has nothing to tell, so nothing says that it is lost."""
    pod = control_plane_pod(kubectl)
    service = (service_of_hello(kubectl), f"--namespace={NAMESPACE}")
    with silenced(pod, "control-plane", API_SERVICE_PORT) as lost:
        assert lost > 0
        kubectl("delete", *service)
        await eventually(
            lambda: bool(kubectl("get", *service, "--ignore-not-found", "--output=name")),
            NOTICED_S + PUT_RIGHT_S,
        )
    after = control_plane_pod(kubectl)
    assert restarts(after) == restarts(pod)


async def test_ready_replicas_answer_while_no_control_plane_is_there(
    installed: Release, kubectl: Kubectl, hello: str
) -> None:
    """Its process is killed over and over."""
    pod = control_plane_pod(kubectl)
    async with calls_at(RATE_PER_S, hello) as calls:
        await asyncio.to_thread(kill, pod, "control-plane")
        with pytest.raises(OSError):
            page(installed, "hello-to-all")
        await called_for(calls, 2.0)
        await eventually(lambda: page(installed, "hello-to-all")["status"] == "running", BACK_S)
    assert calls.failures == []
    again = control_plane_pod(kubectl)
    assert again["metadata"]["uid"] == pod["metadata"]["uid"]
    assert restarts(again) > restarts(pod)


async def test_an_origin_that_hangs_holds_up_nobody_who_is_ready_nor_what_a_node_has(
    installed: Release, cluster: Installation, kubectl: Kubectl, hello: str
) -> None:
    """Another pod of a deployment starts from what is on its node."""
    (victim, *_) = page(installed, "hello-to-all")["live"]["replicas"]
    cluster.daemons.tell("store", signal.SIGSTOP)
    try:
        async with calls_at(RATE_PER_S, hello) as calls:
            kubectl("delete", "pod", victim["id"], f"--namespace={NAMESPACE}", "--wait=false")
            await called_for(calls, 1.0)

            def replaced() -> bool:
                where = "--selector=hotplate.dev/deployment=hello-to-all"
                said = kubectl("get", "pods", where, f"--namespace={NAMESPACE}", "--output=json")
                ready = [
                    pod["metadata"]["name"]
                    for pod in json.loads(said)["items"]
                    for each in pod["status"].get("conditions", ())
                    if each["type"] == "Ready" and each["status"] == "True"
                ]
                return len(ready) == 2 and victim["id"] not in ready

            await eventually(replaced)
    finally:
        cluster.daemons.tell("store", signal.SIGCONT)
    assert calls.failures == []
