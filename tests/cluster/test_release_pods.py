"""What happens to pods of the release, and to no others: they can be watched side by side."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from typing import Any

import pytest

from tests.cluster.calls import Calls, calling, calls_at
from tests.cluster.client import Client
from tests.cluster.helm import RELEASE
from tests.cluster.kubectl import Kubectl
from tests.cluster.layout import REPOSITORY, node_address
from tests.cluster.release import GATEWAY_PORT, Release
from tests.cluster.told import asked, eventually, page, reasons
from tests.support.patience import until

pytestmark = [pytest.mark.cluster, pytest.mark.together, pytest.mark.timeout(180)]
NAMESPACE = f"{RELEASE}-t-default"
NODES = (node_address(1), node_address(2))
RATE_PER_S, EVERY_S = 100.0, 0.1
HELLO = REPOSITORY / "examples/hello"
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


def ready_one(release: Release) -> dict[str, Any]:
    """Of the deployment to all; one that has ended a moment ago may still be told of."""
    replicas = page(release, "hello-to-all")["live"]["replicas"]
    return next(each for each in replicas if each["state"] == "ready")


@pytest.mark.parametrize("way", ["delete", "evict"])
async def test_a_pod_that_is_ended_by_others_fails_no_request(
    installed: Release, kubectl: Kubectl, hello: str, way: str
) -> None:
    victim = ready_one(installed)
    async with calls_at(RATE_PER_S, hello) as calls:
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


async def test_what_a_quota_refuses_and_what_no_node_has_is_the_deployments_reason(
    installed: Release, kubectl: Kubectl, client: Client
) -> None:
    name, where = "fault-quota", f"--namespace={NAMESPACE}"
    with client.deployed(HELLO, name, "--scaling-min", "1", "--scaling-max", "2"):
        pods = len(kubectl("get", "pods", where, "--output=name").split())
        kubectl("create", "quota", "small", f"--hard=pods={pods}", where)
        counted = f"--for=jsonpath={{.status.hard.pods}}={pods}"
        kubectl("wait", "quota", "small", counted, "--timeout=30s", where)
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
    replica = ready_one(installed)
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
        container.pop("resources", None)  # the kubelet asks whether it has room, and for this not
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
