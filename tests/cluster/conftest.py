"""The cluster that the suite runs on: the one that `KUBECONFIG` leads to, or our own."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.helm import Helm
from tests.cluster.installation import Installation
from tests.cluster.kubectl import Kubectl
from tests.cluster.layout import Layout


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
