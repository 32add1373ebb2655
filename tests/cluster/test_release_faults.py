"""What ends, hangs or is refused beside the release, and what its users notice of it."""

from __future__ import annotations

import asyncio
import json
import signal
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.cluster.calls import Calls, calling
from tests.cluster.client import Client
from tests.cluster.helm import RELEASE
from tests.cluster.installation import Installation
from tests.cluster.kubectl import Kubectl
from tests.cluster.layout import REPOSITORY, node_address
from tests.cluster.processes import kill
from tests.cluster.release import API_PORT, GATEWAY_PORT, Release
from tests.support.patience import until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]
NAMESPACE = f"{RELEASE}-t-default"
NODES = (node_address(1), node_address(2))
CALLERS, EVERY_S = 10, 0.1
FAULT_S = 6.0
"""How long something is away; a storm lets it be away for longer."""
HELLO = REPOSITORY / "examples/hello"
PUT_RIGHT_S = 30.0
BACK_S = 60.0
EATS = """
import bentoml

@bentoml.service(
    image=bentoml.images.Image(python_version="3.11"),
    resources={"memory": "200Mi"},
    traffic={"concurrency": 4},
)
class Eats:
    @bentoml.api
    def greet(self, name: str = "world") -> str:
        if name == "glutton":
            self.eaten = bytearray(b"x" * (1 << 30))
        return f"Hello, {name}!"
"""


def asked(release: Release, path: str, method: str = "GET", body: Any = None) -> Any:
    """What the API answers its admin, below its root."""
    request = urllib.request.Request(
        f"http://{NODES[0]}:{API_PORT}{path}",
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={"X-YATAI-API-TOKEN": release.token("admin"), "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.load(answer)


def page(release: Release, name: str, part: str = "") -> Any:
    return asked(release, f"/api/v1/hotplate/deployments/{name}{part}")


def reasons(release: Release, name: str) -> str:
    """All sentences about a deployment, its replicas and its events."""
    seen = page(release, name)
    said = [seen["reason"], *(replica["reason"] for replica in seen["live"]["replicas"])]
    return "\n".join([*said, *(event["message"] for event in seen["events"])])


async def eventually(condition: Callable[[], bool], within_s: float = 60.0) -> None:
    async def holds() -> bool:
        try:
            return await asyncio.to_thread(condition)
        except OSError:  # the API is away
            return False

    await until(holds, within_s)


@pytest.fixture
def outage(cluster: Installation, kubectl: Kubectl) -> Iterator[Installation]:
    """Whatever a test leaves killed or stopped is as it was afterwards."""
    yield cluster
    for name in ("apiserver",):
        cluster.cont(name)
        cluster.start(name)
    kubectl.wait("get", "--raw=/readyz", timeout_s=60)


def both_kinds(calls: Calls) -> list[Any]:
    """Callers of both nodes who keep their connections, and some who come anew."""
    staying = [calls.keep(NODES[n % 2], GATEWAY_PORT, EVERY_S) for n in range(CALLERS)]
    coming = [calls.come_anew(NODES[n % 2], GATEWAY_PORT, EVERY_S) for n in range(CALLERS)]
    return [*staying, *coming]


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


@pytest.mark.parametrize("fault", ["kill", "stop"])
async def test_ready_replicas_answer_without_an_api_server(
    installed: Release, outage: Installation, kubectl: Kubectl, hello: str, fault: str
) -> None:
    """Killed, or so slow that it answers nothing; and the engine acts again when it is back."""
    calls = Calls(hello)
    async with calling(*both_kinds(calls)):
        await until(lambda: len(calls.answered) >= 50)
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


async def test_ready_replicas_answer_while_no_control_plane_is_there(
    installed: Release, kubectl: Kubectl, hello: str
) -> None:
    """Its process is killed over and over."""
    which = ("--selector=app.kubernetes.io/name=hotplate-control-plane", f"--namespace={RELEASE}")
    (pod,) = json.loads(kubectl("get", "pods", *which, "--output=json"))["items"]
    calls = Calls(hello)
    async with calling(*both_kinds(calls)):
        await until(lambda: len(calls.answered) >= 50)
        await asyncio.to_thread(kill, pod, "control-plane")
        with pytest.raises(OSError):
            page(installed, "hello-to-all")
        await called_for(calls, 2.0)
        await eventually(lambda: page(installed, "hello-to-all")["status"] == "running", BACK_S)
    assert calls.failures == []
    (again,) = json.loads(kubectl("get", "pods", *which, "--output=json"))["items"]
    assert again["metadata"]["uid"] == pod["metadata"]["uid"]
    assert again["status"]["containerStatuses"][0]["restartCount"] >= 1


@pytest.mark.parametrize("way", ["delete", "evict"])
async def test_a_pod_that_is_ended_by_others_fails_no_request(
    installed: Release, kubectl: Kubectl, hello: str, way: str
) -> None:
    (victim, *_) = page(installed, "hello-to-all")["live"]["replicas"]
    calls = Calls(hello)
    async with calling(*both_kinds(calls)):
        await until(lambda: len(calls.answered) >= 50)
        if way == "delete":
            kubectl("delete", "pod", victim["id"], f"--namespace={NAMESPACE}", "--wait=false")
        else:
            meta = {"name": victim["id"], "namespace": NAMESPACE}
            eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta}
            path = f"/api/v1/namespaces/{NAMESPACE}/pods/{victim['id']}/eviction"
            kubectl("create", f"--raw={path}", "--filename=-", given=json.dumps(eviction))

        def replaced() -> bool:
            ready = [
                each["id"]
                for each in page(installed, "hello-to-all")["live"]["replicas"]
                if each["state"] == "ready"
            ]
            return len(ready) == 2 and victim["id"] not in ready

        await eventually(replaced)
    assert calls.failures == []


async def test_an_origin_that_hangs_holds_up_nobody_who_is_ready_nor_what_a_node_has(
    installed: Release, cluster: Installation, kubectl: Kubectl, hello: str
) -> None:
    """Another pod of a deployment starts from what is on its node."""
    (victim, *_) = page(installed, "hello-to-all")["live"]["replicas"]
    calls = Calls(hello)
    cluster.daemons.tell("store", signal.SIGSTOP)
    try:
        async with calling(*both_kinds(calls)):
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


async def test_what_a_quota_refuses_and_what_no_node_has_is_the_deployments_reason(
    installed: Release, kubectl: Kubectl, client: Client
) -> None:
    name, where = "fault-quota", f"--namespace={NAMESPACE}"
    with client.deployed(HELLO, name, "--scaling-min", "1", "--scaling-max", "2"):
        pods = len(kubectl("get", "pods", where, "--output=name").split())
        kubectl("create", "quota", "small", f"--hard=pods={pods}", where)
        try:
            client("deployment", "update", name, "--scaling-min", "2", "--scaling-max", "2")
            await eventually(lambda: "exceeded quota" in reasons(installed, name))
        finally:
            kubectl("delete", "quota", "small", where)

        def both_ready() -> bool:
            return bool(page(installed, name)["reason"].startswith("2 replicas"))

        await eventually(both_ready)


async def test_a_name_of_63_characters_is_deployed_and_called(
    installed: Release, kubectl: Kubectl, client: Client
) -> None:
    name = "n" * 62 + "z"
    with client.deployed(HELLO, name, "--scaling-min", "1"):
        host = asked(installed, f"/api/v2/deployments/{name}")["urls"][0].partition("//")[2]
        calls = Calls(host.partition(":")[0])
        async with calling(calls.keep(NODES[0], GATEWAY_PORT, EVERY_S)):
            await until(lambda: len(calls.answered) >= 5)
        assert calls.failures == []
        assert kubectl("get", "configmap", name, f"--namespace={NAMESPACE}", "--output=name")


async def test_a_pod_that_takes_too_much_memory_says_so_and_starts_again(
    installed: Release, client: Client, tmp_path: Any
) -> None:
    name = "fault-memory"
    (tmp_path / "service.py").write_text(EATS)
    with client.deployed(tmp_path, name, "--scaling-min", "1", "--scaling-max", "1") as host:
        fatal = urllib.request.Request(
            f"http://{NODES[0]}:{GATEWAY_PORT}/greet",
            data=b'{"name": "glutton"}',
            headers={"Host": host, "Content-Type": "application/json"},
        )
        with pytest.raises(OSError):
            await asyncio.to_thread(urllib.request.urlopen, fatal, timeout=60)
        await eventually(lambda: "memory" in reasons(installed, name))
        calls = Calls(host)
        async with calling(calls.keep(NODES[1], GATEWAY_PORT, EVERY_S)):
            await until(lambda: len(calls.answered) >= 5)


async def test_a_pod_that_was_copied_into_another_namespace_is_refused_and_that_is_told(
    installed: Release, kubectl: Kubectl, hello: str, namespace: str
) -> None:
    """Nothing of the organization's is shown to it."""
    (replica, *_) = page(installed, "hello-to-all")["live"]["replicas"]
    pod = json.loads(
        kubectl("get", "pod", replica["id"], f"--namespace={NAMESPACE}", "--output=json")
    )
    spec = {**pod["spec"], "serviceAccountName": "default", "nodeName": replica["node"]}
    spec["volumes"] = [
        {**each, "name": each["name"]} if "csi" in each else {"name": each["name"], "emptyDir": {}}
        for each in pod["spec"]["volumes"]
    ]
    for container in spec["containers"]:
        container.pop("envFrom", None)
    copy = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "copy"}, "spec": spec}
    copy["metadata"] = {"name": "copy", "namespace": namespace}
    kubectl.wait("get", "serviceaccount", "default", f"--namespace={namespace}", timeout_s=30)
    kubectl.apply([copy])
    fields = "--field-selector=reason=FailedMount,involvedObject.name=copy"
    events = ("get", "events", f"--namespace={namespace}", fields)
    await eventually(lambda: "copied" in kubectl(*events, "--output=json"), 60.0)
    said = kubectl("get", "pod", "copy", f"--namespace={namespace}", "--output=json")
    assert json.loads(said)["status"]["phase"] == "Pending"
    await eventually(lambda: "copied" in json.dumps(asked(installed, "/api/v1/hotplate/events")))
