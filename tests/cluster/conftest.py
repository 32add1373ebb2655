"""The cluster that the suite runs on: the one that `KUBECONFIG` leads to, or our own."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.client import Client
from tests.cluster.helm import Helm
from tests.cluster.installation import Installation
from tests.cluster.kubectl import Kubectl
from tests.cluster.layout import REPOSITORY, Layout
from tests.cluster.release import RELEASE_IS_OURS, Release
from tests.cluster.told import is_deployed
from tests.schedule import FIRST_ON_A_CLUSTER, rank


@pytest.fixture(scope="session")
def kubeconfig() -> Path:
    """How the cluster is asked."""
    own = Layout().kubeconfig
    given = Path(os.environ.get("KUBECONFIG") or own)
    if not given.exists():
        pytest.skip("there is no cluster; run `make cluster-up`")
    return given


@pytest.fixture(scope="session")
def cluster(kubeconfig: Path) -> Installation:
    """Our own, with two real nodes at least: what tests take down and up again."""
    layout = Layout()
    if kubeconfig != layout.kubeconfig:
        pytest.skip("the cluster of KUBECONFIG is not ours to break")
    return Installation(layout)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What needs the whole release is marked and comes last: nodes have one agent each, which
    others bring. Of the others, and of those, what takes longest begins first; what takes the
    release away comes last, with what it has built."""
    for item in items:
        if "installed" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.released)
    items.sort(
        key=lambda item: (
            item.get_closest_marker("released") is not None
            or item.nodeid.startswith("tests/scenarios/"),
            item.path.name == "test_uninstall.py",
            rank(item.nodeid, FIRST_ON_A_CLUSTER),
        )
    )


@pytest.fixture
def kubectl(kubeconfig: Path) -> Kubectl:
    return Kubectl(Layout(), kubeconfig)


@pytest.fixture
def helm(kubeconfig: Path) -> Helm:
    return Helm(Layout(), kubeconfig)


@pytest.fixture
def namespace(kubectl: Kubectl) -> Iterator[str]:
    """One of the test's own."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    kubectl("create", "namespace", name)
    yield name
    kubectl("delete", "namespace", name, "--grace-period=0", "--wait=false")


@pytest.fixture(scope="session")
def is_ours(cluster: Installation) -> bool:
    """Whether the release is for tests alone."""
    return RELEASE_IS_OURS in os.environ or not Release.on(cluster).is_there()


@pytest.fixture(scope="session")
def nodes_without_agents(cluster: Installation) -> None:
    """A node has one agent, and a cluster one driver of volumes: those of a release stay."""
    if Release.on(cluster).is_there():
        pytest.skip("a release has the nodes' agents; `helm uninstall` it before")


@pytest.fixture(scope="session")
def installed(cluster: Installation, is_ours: bool) -> Iterator[Release]:
    """The release of this tree's chart, ready; one that was there before stays."""
    one = Release.on(cluster)
    if RELEASE_IS_OURS not in os.environ:
        list(one.install())
    yield one
    if is_ours and RELEASE_IS_OURS not in os.environ:
        one.uninstall()


@pytest.fixture(scope="session")
def client(installed: Release, tmp_path_factory: pytest.TempPathFactory) -> Client:
    """The stock client, logged in."""
    one = Client(tmp_path_factory.mktemp("laptop"))
    one.types(installed.login())
    return one


@pytest.fixture(scope="session")
def hello(installed: Release, client: Client, is_ours: bool) -> Iterator[str]:
    """The host name of a deployment of `examples/hello` with two replicas.

    In a release for tests alone it stays for the next run, and goes with the release.
    """
    name, flags = "hello-to-all", ("--scaling-min", "2", "--scaling-max", "2")
    is_new = not is_deployed(installed, name)
    if is_new:
        client("deploy", ".", "--name", name, *flags, folder=REPOSITORY / "examples/hello")
    yield f"{name}.models.test"
    if is_new and not is_ours:
        client("deployment", "delete", name)
