"""The engine of a cluster does what every engine has to do, with pods of real nodes."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.cluster.engine_under_test import ClusterEngineUnderTest
from tests.cluster.installation import Installation
from tests.cluster.kubectl import Kubectl
from tests.deploy.conformance import Conformance

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]


@pytest.fixture
async def under_test(
    cluster: Installation, kubectl: Kubectl
) -> AsyncIterator[ClusterEngineUnderTest]:
    async with ClusterEngineUnderTest(cluster, kubectl).running() as made:
        yield made


class TestKubernetesEngine(Conformance):
    """With pods."""
