"""The namespaces of organizations: made, followed while there is the organization, and apart."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from hotplate.deploy.cluster import names
from hotplate.deploy.cluster.kinds import NAMESPACE, SECRET, Ref
from hotplate.deploy.cluster.tenants import Tenants
from tests.support.deploy.cluster import ClusterInMemory, placed, workload
from tests.support.deploy.cluster_server import ClusterServer
from tests.support.patience import until

AGAIN_S = 0.2


@pytest.fixture
async def server() -> AsyncIterator[ClusterServer]:
    async with ClusterServer(ClusterInMemory()).running() as made:
        yield made


@asynccontextmanager
async def seen(server: ClusterServer, *pull_secrets: str) -> AsyncIterator[Tenants]:
    api = server.api()
    tenants = Tenants(api, "hotplate", lambda: None, pull_secrets, AGAIN_S)
    try:
        yield tenants
    finally:
        await tenants.close()
        await api.close()


def namespaces(server: ClusterServer) -> Sequence[str]:
    return sorted(ref.name for ref in server.cluster.objects if ref.kind == NAMESPACE.name)


def put_secret(server: ClusterServer, value: str, namespace: str = "hotplate") -> Ref:
    return server.cluster.put(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "registry", "namespace": namespace},
            "type": "kubernetes.io/dockerconfigjson",
            "data": {".dockerconfigjson": base64.b64encode(value.encode()).decode()},
        }
    )


COPY = Ref(SECRET.name, "hotplate-t-acme", "registry")


def copied(server: ClusterServer) -> str:
    there = server.cluster.objects.get(COPY)
    return base64.b64decode(there["data"][".dockerconfigjson"]).decode() if there else ""


async def test_one_that_is_gone_is_followed_no_longer(server: ClusterServer) -> None:
    async with seen(server) as tenants:
        assert await tenants.prepare(["acme", "other"], ["acme", "other"]) == {}
        await tenants.listed()
        where = placed(workload()).namespace
        metadata = {"name": "a", "namespace": where, "labels": names.organization_labels("acme")}
        ref = server.cluster.put({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
        await until(lambda: ref in tenants.objects())
        await tenants.prepare(["other"], [])
        assert tenants.objects() == {} and not tenants.is_listed("acme")
        assert tenants.is_listed("other")
        await tenants.prepare(["acme", "other"], ["acme"])
        await tenants.listed()
        assert ref in tenants.objects()


async def test_one_that_is_refused_holds_up_no_other(server: ClusterServer) -> None:
    async with seen(server) as tenants:
        server.statuses = [403]  # as while an old namespace of that name ends
        refused = await tenants.prepare([], ["acme", "other"])
        assert {name: str(error) for name, error in refused.items()} == {
            "acme": "it was told to refuse"
        }
        await tenants.listed()
        assert (tenants.is_listed("acme"), tenants.is_listed("other")) == (False, True)
        written = len(server.writes)
        assert set(await tenants.prepare([], ["acme", "other"])) == {"acme"}
        assert len(server.writes) == written, "it is not tried at each look"

        async def is_made() -> bool:
            return not await tenants.prepare([], ["acme", "other"])

        await until(is_made)
        assert namespaces(server) == ["hotplate-t-acme", "hotplate-t-other"]


async def test_copies_of_pull_secrets_follow_and_are_put_right(server: ClusterServer) -> None:
    put_secret(server, "first")
    async with seen(server, "registry", "missing") as tenants:

        async def becomes(value: str) -> None:
            async def is_so() -> bool:
                await tenants.prepare(["acme"], ["acme"])
                return copied(server) == value

            await until(is_so)

        await tenants.prepare(["acme"], ["acme"])
        assert copied(server) == "first", "it is there before any pod is"
        assert server.cluster.objects[COPY]["type"] == "kubernetes.io/dockerconfigjson"
        labels = server.cluster.objects[COPY]["metadata"]["labels"]
        assert labels == names.organization_labels("acme")
        put_secret(server, "second")
        await becomes("second")
        put_secret(server, "somebody's", COPY.namespace)
        await becomes("second")
        server.cluster.delete(COPY)
        await becomes("second")
        written = len(server.writes)
        reads = len(server.reads)
        await until(lambda: tenants.is_listed("acme"))

        async def looked() -> bool:
            await tenants.prepare(["acme"], ["acme"])
            return len(server.reads) > reads + 4

        await until(looked)
        assert server.writes[written:] == []
        assert Ref(SECRET.name, COPY.namespace, "missing") not in server.cluster.objects


async def test_a_copy_that_is_refused_holds_up_nothing(
    server: ClusterServer, caplog: pytest.LogCaptureFixture
) -> None:
    put_secret(server, "first")
    async with seen(server, "registry") as tenants:
        await tenants.prepare(["acme"], ["acme"])
        put_secret(server, "second")
        server.statuses = [422]

        async def tried() -> bool:
            assert await tenants.prepare(["acme"], ["acme"]) == {}
            return not server.statuses

        await tenants.listed()
        await until(tried)
    assert "registry cannot be copied: it was told to refuse" in caplog.text
