"""The chart says what the issue's tables say, and a real API server admits all of it."""

from __future__ import annotations

import base64
import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.errors import TestClusterError
from tests.cluster.helm import CHART, KUBERNETES, VALUES, Helm
from tests.cluster.kubectl import Kubectl

pytestmark = [pytest.mark.cluster, pytest.mark.together]
SECRETS = "hotplate.dev/secrets"
PRIVILEGED, RESTRICTED = "privileged", "restricted"
KINDS: dict[str, dict[str, Any]] = {
    "sqlite": {"database": {"secretName": ""}},
    "postgresql": {},
    "tls": {
        "gateway": {"tls": {"secretName": "certificate"}, "service": {"annotations": {"a": "b"}}}
    },
    "tokens": {"tokens": {"existingSecret": "own"}, "blobs": {"secretName": ""}},
    "gpus": {
        "nodes": {
            "selector": {"pool": "gpu"},
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
        },
        "instanceTypes": {
            "gpu.l4.1": {"cpus": 8, "memory": "32GiB", "gpus": 1, "nodeSelector": {"gpu": "l4"}}
        },
        "capacity": {"cpus": 64, "gpus": 8},
        "agent": {"memory": "1.5GiB", "disk": "500GB"},
        "settings": {"platform": {"revisions_kept": 3}, "standby": {"mode": "off"}},
    },
}


@pytest.fixture
def release(kubectl: Kubectl, namespace: str) -> Iterator[str]:
    """A namespace that refuses what is not `restricted`, and those that the chart makes by it."""
    enforce(kubectl, namespace, RESTRICTED)
    for name, level in ((f"{namespace}-agents", PRIVILEGED), (f"{namespace}-builds", RESTRICTED)):
        kubectl("create", "namespace", name)
        enforce(kubectl, name, level)
    yield namespace
    for name in (f"{namespace}-agents", f"{namespace}-builds"):
        kubectl("delete", "namespace", name, "--wait=false")


def enforce(kubectl: Kubectl, namespace: str, level: str) -> None:
    kubectl("label", "namespace", namespace, f"pod-security.kubernetes.io/enforce={level}")


@pytest.mark.parametrize("kind", KINDS)
def test_every_object_is_admitted(
    helm: Helm,
    kubectl: Kubectl,
    nodes_without_agents: None,
    release: str,
    kind: str,
    tmp_path: Path,
) -> None:
    objects = helm.rendered(release, KINDS[kind], tmp_path)
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    flags = ["--server-side", "--force-conflicts", "--dry-run=server", "--filename=-"]
    assert len(kubectl("apply", *flags, given=text).splitlines()) == len(objects)
    for each in objects:
        labels = each["metadata"]["labels"]
        assert labels["app.kubernetes.io/managed-by"] == "hotplate", each["metadata"]
        assert labels["app.kubernetes.io/part-of"] == "hotplate", each["metadata"]
        if pod := pod_of(each):
            admit(kubectl, each["metadata"]["namespace"], pod)


def pod_of(manifest: dict[str, Any]) -> dict[str, Any] | None:
    template = manifest.get("spec", {}).get("template")
    return template if isinstance(template, dict) else None


def admit(kubectl: Kubectl, namespace: str, template: dict[str, Any]) -> None:
    """Asks for the pod itself: of a Deployment, a namespace's level only warns."""
    pod = {**template, "apiVersion": "v1", "kind": "Pod"}
    pod["metadata"] = {**template["metadata"], "name": "own", "namespace": namespace}
    pod["spec"] = {**template["spec"], "serviceAccountName": "default"}
    kubectl.wait("get", "serviceaccount", "default", f"--namespace={namespace}", timeout_s=30)
    kubectl("create", "--dry-run=server", "--filename=-", given=json.dumps(pod))


def test_only_agents_need_more_than_restricted(
    helm: Helm, kubectl: Kubectl, release: str, tmp_path: Path
) -> None:
    enforce_all = ["namespace", f"{release}-agents", "--overwrite"]
    kubectl("label", *enforce_all, f"pod-security.kubernetes.io/enforce={RESTRICTED}")
    refused = []
    for each in helm.rendered(release, {}, tmp_path):
        if pod := pod_of(each):
            try:
                admit(kubectl, each["metadata"]["namespace"], pod)
            except TestClusterError as error:
                assert "violates PodSecurity" in str(error)
                refused.append((each["kind"], each["metadata"]["name"]))
    assert refused == [("DaemonSet", "hotplate-agent")]


def test_a_typing_error_in_the_values_is_refused_with_its_place(helm: Helm, tmp_path: Path) -> None:
    with pytest.raises(TestClusterError, match=r"(?s)gateway.*'replcias'.*not allowed"):
        helm.rendered("hotplate", {"gateway": {"replcias": 3}}, tmp_path)
    with pytest.raises(TestClusterError, match="url is missing: say where deployments are called"):
        helm.rendered("hotplate", {"url": ""}, tmp_path)
    with pytest.raises(TestClusterError, match=r"blobs\.url is missing: say where bentos"):
        helm.rendered("hotplate", {"blobs": {"url": ""}}, tmp_path)


def test_what_the_control_plane_reads_has_the_values_as_they_were_given(
    helm: Helm, tmp_path: Path
) -> None:
    objects = helm.rendered("hotplate", KINDS["gpus"], tmp_path)
    data = [each["data"] for each in objects if each["kind"] == "ConfigMap"]
    (file,) = [each["hotplate.toml"] for each in data if "hotplate.toml" in each]
    tables = tomllib.loads(file)
    assert tables["platform"]["revisions_kept"] == 3
    assert isinstance(tables["platform"]["revisions_kept"], int)
    assert tables["platform"]["blobs_url"] == "s3://hotplate/blobs"
    assert tables["standby"] == {"mode": "off"}
    sized = {"cpus": 8, "memory": "32GiB", "gpus": 1}
    assert tables["instance_types"] == {"gpu.l4.1": sized}
    assert tables["cluster"]["instance_selectors"] == {"gpu.l4.1": {"gpu": "l4"}}
    assert tables["cluster"]["capacity_gpus"] == 8
    assert tables["cluster"]["url"] == "http://*.models.test:30080"


def test_lint_finds_nothing(helm: Helm) -> None:
    said = helm("lint", "--strict", str(CHART), f"--values={VALUES}", KUBERNETES)
    assert "1 chart(s) linted, 0 chart(s) failed" in said


@pytest.mark.alone
def test_secrets_of_the_installers_are_taken_and_agents_get_what_they_need_of_them(
    helm: Helm, kubectl: Kubectl, namespace: str, nodes_without_agents: None
) -> None:
    asking = ["install", "own", str(CHART), f"--namespace={namespace}", f"--values={VALUES}"]
    asking += ["--set=tokens.existingSecret=own", "--dry-run=server", "--output=json"]
    with pytest.raises(TestClusterError, match=r"the Secret 'own' of the namespace .* has no key"):
        helm(*asking)
    tokens = ["--from-literal=admin-token=one", "--from-literal=cluster-token=two"]
    kubectl("create", "secret", "generic", "own", f"--namespace={namespace}", *tokens)
    with pytest.raises(TestClusterError, match="there is no Secret 'store' in the namespace"):
        helm(*asking)
    key = "--from-literal=AWS_ACCESS_KEY_ID=three"
    kubectl("create", "secret", "generic", "store", f"--namespace={namespace}", key)
    objects = yaml.safe_load_all(json.loads(helm(*asking))["manifest"])
    made = [each for each in objects if each and each["kind"] == "Secret"]
    assert {each["metadata"]["namespace"] for each in made} == {f"{namespace}-agents"}
    contents = {each["metadata"]["name"]: each["data"] for each in made}
    expected = {"own": {"cluster-token": "two"}, "store": {"AWS_ACCESS_KEY_ID": "three"}}
    assert contents == {
        name: {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
        for name, data in expected.items()
    }


@pytest.mark.alone
def test_pods_start_anew_with_an_upgrade_after_a_secret_that_they_read_has_changed(
    helm: Helm, kubectl: Kubectl, namespace: str, nodes_without_agents: None
) -> None:
    asking = ["install", "own", str(CHART), f"--namespace={namespace}", f"--values={VALUES}"]

    def said(**secrets: str) -> dict[str, str]:
        for name, value in secrets.items():
            meta = {"name": name, "namespace": namespace}
            kind = {"apiVersion": "v1", "kind": "Secret", "metadata": meta}
            kubectl.apply([{**kind, "stringData": {"key": value}}])
        rendered = json.loads(helm(*asking, "--dry-run=server", "--output=json"))["manifest"]
        pods = [(each, pod_of(each)) for each in yaml.safe_load_all(rendered) if each]
        return {
            each["metadata"]["name"]: pod["metadata"].get("annotations", {}).get(SECRETS, "")
            for each, pod in pods
            if pod
        }

    first = said(store="one", database="one")
    assert said() == first
    other_store = said(store="two")
    changed = {name for name in first if other_store[name] != first[name]}
    assert changed == {"hotplate-agent", "hotplate-control-plane"}
    other_database = said(database="two")
    changed = {name for name in first if other_database[name] != other_store[name]}
    assert changed == {"hotplate-control-plane"}


@pytest.mark.alone
def test_tokens_and_rights_of_a_release_and_what_is_left_when_it_is_uninstalled(
    helm: Helm, kubectl: Kubectl, namespace: str, nodes_without_agents: None
) -> None:
    values = [f"--namespace={namespace}", f"--values={VALUES}", "--set=gateway.replicas=1"]
    own = ["controlPlane.service.nodePort=null", "gateway.service.nodePort=null"]
    flags = [*values, *(f"--set={value}" for value in [*own, "blobs.secretName="])]
    helm("install", "own", str(CHART), *flags)
    try:
        before = secret(kubectl, namespace, "hotplate-tokens")
        assert set(before) == {"admin-token", "cluster-token"}
        helm("upgrade", "own", str(CHART), *flags, "--set=gateway.drainSeconds=60")
        assert secret(kubectl, namespace, "hotplate-tokens") == before
        of_agents = secret(kubectl, f"{namespace}-agents", "hotplate-tokens")
        assert of_agents == {"cluster-token": before["cluster-token"]}
        check_rights(kubectl, namespace)
        organization(kubectl, f"{namespace}-t-default")
    finally:
        helm("uninstall", "own", f"--namespace={namespace}", "--wait", "--timeout=120s")
    everything = "namespaces,clusterroles,clusterrolebindings,csidrivers"
    left = kubectl("get", everything, "--selector=app.kubernetes.io/part-of=hotplate", "-oname")
    assert [name for name in left.split() if namespace in name] == []
    kinds = "all,secrets,configmaps,serviceaccounts,persistentvolumeclaims,roles,rolebindings"
    ours = ["--selector=app.kubernetes.io/part-of=hotplate", "--output=name"]
    assert kubectl("get", kinds, f"--namespace={namespace}", *ours) == ""


def secret(kubectl: Kubectl, namespace: str, name: str) -> dict[str, str]:
    said = kubectl("get", "secret", name, f"--namespace={namespace}", "--output=json")
    data: dict[str, str] = json.loads(said)["data"]
    return data


def organization(kubectl: Kubectl, name: str) -> None:
    """As the engine makes it: a deployment's anchor holds the namespace until it has drained."""
    labels = {"app.kubernetes.io/managed-by": "hotplate", "app.kubernetes.io/part-of": "hotplate"}
    metadata = {"name": name, "labels": labels}
    anchor = {
        "name": "own",
        "namespace": name,
        "labels": labels,
        "finalizers": ["hotplate.dev/drain"],
    }
    kubectl.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}])
    kubectl.apply([{"apiVersion": "v1", "kind": "ConfigMap", "metadata": anchor}])


def check_rights(kubectl: Kubectl, release: str) -> None:
    """What each account may, beyond what every account may."""
    every_account = rights(kubectl, release, "default", release)
    for account, own in (("hotplate-agent", f"{release}-agents"), ("default", f"{release}-builds")):
        assert rights(kubectl, own, account, own) == every_account, account
    gateway = rights(kubectl, release, "hotplate-gateway", release) - every_account
    assert gateway == {"endpointslices.discovery.k8s.io [get list watch]"}
    control_plane = rights(kubectl, release, "hotplate-control-plane", "kube-system")
    assert control_plane - every_account == {
        "nodes [get list watch]",
        "namespaces [get create patch delete]",
        "rolebindings.rbac.authorization.k8s.io [get create patch]",
        "clusterroles.rbac.authorization.k8s.io [bind]",
    }
    asking = f"--as=system:serviceaccount:{release}:hotplate-control-plane"
    kubectl("create", "namespace", f"{release}-t-default", "--dry-run=server", asking)
    with pytest.raises(TestClusterError, match=f"changes namespaces that begin with {release}-t-"):
        kubectl("create", "namespace", "another", "--dry-run=server", asking)
    with pytest.raises(TestClusterError, match=f"changes namespaces that begin with {release}-t-"):
        role = f"--clusterrole={release}-tenant"
        binding = ["rolebinding", "own", role, "--user=own", "--namespace=kube-system"]
        kubectl("create", *binding, "--dry-run=server", asking)


def rights(kubectl: Kubectl, namespace: str, account: str, where: str) -> set[str]:
    user = f"--as=system:serviceaccount:{namespace}:{account}"
    groups = [
        "system:serviceaccounts",
        f"system:serviceaccounts:{namespace}",
        "system:authenticated",
    ]
    asking = [user, *(f"--as-group={group}" for group in groups)]
    listed = kubectl("auth", "can-i", "--list", "--no-headers", f"--namespace={where}", *asking)
    found = set()
    for line in listed.splitlines():
        name, verbs = line.split(maxsplit=1)[0], line[line.rindex("[") :]
        found.add(f"{name} {verbs}")
    return found
