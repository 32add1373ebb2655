"""The cluster that the suite runs on, if one has been made."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from tests.cluster.installation import Installation
from tests.cluster.kubectl import Kubectl
from tests.cluster.layout import Layout


@pytest.fixture(scope="session")
def cluster() -> Installation:
    """Two real nodes at least."""
    layout = Layout()
    if not layout.kubeconfig.exists():
        pytest.skip("there is no cluster; run `make cluster-up`")
    return Installation(layout)


@pytest.fixture
def kubectl(cluster: Installation) -> Kubectl:
    return Kubectl(cluster.layout)


@pytest.fixture
def namespace(kubectl: Kubectl) -> Iterator[str]:
    """One of the test's own."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    kubectl("create", "namespace", name)
    yield name
    kubectl("delete", "namespace", name, "--grace-period=0", "--wait=false")
