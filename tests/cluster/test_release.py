"""The whole release on the test cluster: installed, changed while it is called, and gone."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.calls import Calls, calling
from tests.cluster.client import Client
from tests.cluster.helm import RELEASE
from tests.cluster.kubectl import Kubectl
from tests.cluster.layout import REPOSITORY, node_address
from tests.cluster.release import API_PORT, GATEWAY_PORT, PARTS, Release
from tests.cluster.told import eventually
from tests.support.certificates import issue
from tests.support.patience import until

pytestmark = pytest.mark.cluster
NODES = (node_address(1), node_address(2))
LABEL = "--selector=app.kubernetes.io/part-of=hotplate"


def asked(url: str, **headers: str) -> tuple[int, Any]:
    """The status and the JSON of an answer."""
    request = urllib.request.Request(url, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_the_last_line_logs_the_stock_client_in(installed: Release, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.cluster", "install"]
    done = subprocess.run(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True, check=True)
    line = done.stdout.splitlines()[-1]
    assert line.startswith("bentoml cloud login ")
    assert f"http://{NODES[0]}:{API_PORT}" in line
    assert "Logged in as admin" in Client(tmp_path).types(line)


def test_installed_again_nothing_is_changed(installed: Release, kubectl: Kubectl) -> None:
    def versions() -> list[str]:
        said = [
            kubectl("get", "deployments,daemonsets,pods", f"--namespace={namespace}", "-oname")
            for namespace in (RELEASE, f"{RELEASE}-agents")
        ]
        return "".join(said).split()

    before = versions()
    assert list(installed.install()) == []
    assert versions() == before


@pytest.mark.parametrize("node", NODES)
def test_every_node_leads_to_the_api_and_to_gateways(installed: Release, node: str) -> None:
    assert asked(f"http://{node}:{API_PORT}/healthz")[0] == 200
    assert asked(f"http://{node}:{API_PORT}/readyz")[0] == 200
    status, said = asked(f"http://{node}:{GATEWAY_PORT}/", Host="nobody.models.test")
    assert (status, said["error"]["code"]) == (404, "unknown_host")


@pytest.mark.parametrize(("namespace", "part"), PARTS)
async def test_a_part_is_started_anew_and_no_request_fails(
    kubectl: Kubectl, hello: str, namespace: str, part: str
) -> None:
    kept, new = Calls(hello), Calls(hello)
    staying = [kept.keep(NODES[n % 2], GATEWAY_PORT, every_s=0.1) for n in range(10)]
    coming = [new.come_anew(NODES[n % 2], GATEWAY_PORT, every_s=0.1) for n in range(10)]
    async with calling(*staying, *coming):
        await until(lambda: len(kept.answered) >= 50 <= len(new.answered))
        where = f"--namespace={namespace}"
        await asyncio.to_thread(kubectl, "rollout", "restart", part, where)
        await asyncio.to_thread(kubectl, "rollout", "status", part, where, "--timeout=120s")
        soon = len(kept.answered) + 50
        await until(lambda: len(kept.answered) >= soon)
    assert kept.failures == []
    assert new.failures == []


@pytest.fixture(scope="module")
def changed(installed: Release, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The certificate of gateways that serve TLS too; afterwards all is as it was.

    Several values at once: each change starts gateways and the control plane anew.
    """
    folder, kubectl = tmp_path_factory.mktemp("changed"), installed.kubectl
    certificate, key = issue(folder, "gateway")
    files = [f"--cert={certificate}", f"--key={key}"]
    kubectl("create", "secret", "tls", "certificate", f"--namespace={RELEASE}", *files)
    values = {
        "gateway": {
            "tls": {"secretName": "certificate"},
            "drainSeconds": 20,
            "service": {"annotations": {"example.com/scheme": "internal"}},
        },
        "capacity": {"cpus": 3, "memory": "3GiB"},
        "instanceTypes": {
            "small": {"cpus": 0.5, "memory": "256MiB", "nodeSelector": {"size": "small"}}
        },
        "settings": {"platform": {"revisions_kept": 3}},
    }
    file = folder / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    list(installed.install(file))
    yield certificate
    list(installed.install())
    kubectl("delete", "secret", "certificate", f"--namespace={RELEASE}")


def test_values_are_followed(kubectl: Kubectl, client: Client, hello: str, changed: Path) -> None:
    service = got(kubectl, "service/hotplate-gateway")
    assert service["metadata"]["annotations"]["example.com/scheme"] == "internal"
    trusting = ssl.create_default_context(cafile=changed)
    address = (service["spec"]["clusterIP"], 443)
    with (
        socket.create_connection(address, timeout=10) as plain,
        trusting.wrap_socket(plain, server_hostname="localhost") as wire,
    ):
        wire.sendall(f"GET /livez HTTP/1.0\r\nHost: {hello}\r\n\r\n".encode())
        assert wire.recv(100).startswith(b"HTTP/1.1 200")
    pod = got(kubectl, "deployment/hotplate-gateway")["spec"]["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] == 35
    assert "small" in client("deployment", "list-instance-types")


async def test_an_instance_type_runs_on_the_nodes_that_it_selects(
    kubectl: Kubectl, client: Client, hello: str, changed: Path
) -> None:
    service = REPOSITORY / "examples/hello"
    flags = ["--instance-type", "small", "--scaling-min", "1", "--no-wait"]
    with client.deployed(service, "hello-small", *flags):

        def pods() -> list[Any]:
            selector = "--selector=hotplate.dev/deployment=hello-small,hotplate.dev/role=replica"
            asking = ["pods", f"--namespace={RELEASE}-t-default", selector, "--output=json"]
            return list(json.loads(kubectl("get", *asking))["items"])

        def said() -> str:
            return " ".join(
                condition.get("message", "")
                for pod in pods()
                for condition in pod["status"].get("conditions", ())
            )

        await eventually(lambda: "didn't match Pod's node affinity/selector" in said())
        (pod,) = pods()
        assert pod["spec"]["nodeSelector"] == {"size": "small"}
        kubectl("label", "node", "node2", "size=small")
        try:
            await eventually(lambda: [each["spec"].get("nodeName") for each in pods()] == ["node2"])
        finally:
            kubectl("label", "node", "node2", "size-")


def got(kubectl: Kubectl, what: str) -> Any:
    return json.loads(kubectl("get", what, f"--namespace={RELEASE}", "--output=json"))
