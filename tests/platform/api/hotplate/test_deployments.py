"""What our own page of a deployment says beside what its status page shows."""

from __future__ import annotations

from hotplate.platform.store.learnt import of_deciders
from hotplate.platform.store.parts import Store
from tests.support.control_plane.cloud import Cloud


async def test_what_deciders_have_learnt_is_told_by_service(cloud: Cloud, store: Store) -> None:
    await cloud.push_bento()
    await cloud.deploy()
    own = "/api/v1/hotplate/deployments/echo"
    learnt = (await cloud.call("GET", own))["learnt"]
    assert learnt and set(learnt.values()) == {None}
    (service,) = learnt
    (deployment,) = await store.run(store.deployments.all)
    memory = {"cold_starts_s": [4.2], "service_s": 0.5}
    await store.run(store.learnt.put, of_deciders(deployment.uid) + service, memory)
    assert (await cloud.call("GET", own))["learnt"] == {service: memory}
