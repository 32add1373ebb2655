"""The storms of a release on a cluster, in small."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from loadtests.storms import cluster_kills, cluster_volume
from loadtests.systems.release_user import release_user
from tests.cluster.installation import Installation
from tests.cluster.layout import Layout
from tests.cluster.release import Release

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


@pytest.fixture
def installed() -> Release:
    """The one that is there."""
    cluster = Installation(Layout())
    if not cluster.layout.kubeconfig.exists() or not Release.on(cluster).is_there():
        pytest.skip("there is no release; run `make cluster-up cluster-install`")
    return Release.on(cluster)


async def test_what_was_acknowledged_comes_about_whenever_the_control_plane_dies(
    installed: Release, tmp_path: Path
) -> None:
    """Once in each of a deploy, a scale-up, a roll-out and a delete; the storm does 50."""
    async with release_user(tmp_path) as user:
        verdict = await cluster_kills.storm(user, 4, random.Random(1))
    assert verdict.broken == []
    assert verdict.figures["kills"] == 4


async def test_a_volume_that_is_held_back_holds_up_its_pod_alone(
    installed: Release, tmp_path: Path
) -> None:
    """For some seconds; the storm holds it back longer than a kubelet waits."""
    async with release_user(tmp_path) as user:
        verdict = await cluster_volume.storm(user, tmp_path, 5.0)
    assert verdict.broken == []
