"""The engine of a cluster does what every engine has to do, with pods of real nodes and with the
rights that the chart gives the control plane."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.cluster.account import control_plane_account
from tests.cluster.engine_under_test import ClusterEngineUnderTest
from tests.cluster.helm import Helm
from tests.cluster.installation import Installation
from tests.cluster.kubectl import Kubectl
from tests.deploy.conformance import Conformance

pytestmark = [pytest.mark.cluster, pytest.mark.together, pytest.mark.timeout(180)]


@pytest.fixture
async def under_test(
    cluster: Installation, kubectl: Kubectl, helm: Helm, tmp_path: Path
) -> AsyncIterator[ClusterEngineUnderTest]:
    release = f"test-{uuid.uuid4().hex[:8]}"
    with control_plane_account(helm, kubectl, release, tmp_path) as kubeconfig:
        given = ClusterEngineUnderTest(cluster, kubectl, release=release, kubeconfig=kubeconfig)
        async with given.running() as made:
            yield made


class TestKubernetesEngine(Conformance):
    """With pods."""
