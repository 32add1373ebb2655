"""An organization that is deleted loses its namespace, and nobody else does."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
from sqlalchemy import text

from hotplate.deploy.cluster.kinds import NAMESPACE, Ref
from hotplate.deploy.cluster.objects import tenancy
from hotplate.platform.cluster.tenants import KnownOrganizations
from hotplate.platform.store.audit import ACTOR, Actor
from hotplate.platform.store.parts import Store
from tests.support.deploy.cluster import ClusterInMemory
from tests.support.deploy.cluster_server import ClusterServer

ACME = Ref(NAMESPACE.name, "", "hotplate-t-acme")


@pytest.fixture
async def server() -> AsyncIterator[ClusterServer]:
    async with ClusterServer(ClusterInMemory()).running() as made:
        for name in ("acme", "other"):
            made.cluster.put(tenancy("hotplate", name)[0])
        yield made


@pytest.fixture
async def known(server: ClusterServer, store: Store) -> AsyncIterator[KnownOrganizations]:
    for name in ("acme", "other"):
        store.organizations.create(name)
    api = server.api()
    known = KnownOrganizations(store, api, "hotplate")
    await known.read()
    yield known
    await api.close()


@pytest.fixture(autouse=True)
def somebody() -> Iterator[None]:
    """Whoever deletes is known, as the API knows its callers."""
    token = ACTOR.set(Actor("ada", organization="default"))
    yield
    ACTOR.reset(token)


def delete(store: Store, name: str) -> None:
    store.organizations.delete(name, force=True)
    store.organizations.finish_deletions()


def namespaces(server: ClusterServer) -> set[str]:
    return {ref.name for ref in server.cluster.objects if ref.kind == NAMESPACE.name}


async def test_one_that_is_deleted_loses_its_namespace(
    known: KnownOrganizations, server: ClusterServer, store: Store
) -> None:
    assert set(known.names()) == {"acme", "other"}
    await known.look()
    assert server.writes == []
    delete(store, "acme")
    await known.look()
    assert set(known.names()) == {"other"}
    assert namespaces(server) == {"hotplate-t-other"}
    written, read = len(server.writes), len(server.reads)
    await known.look()
    assert (len(server.writes), len(server.reads)) == (written, read), "once is enough"


async def test_its_namespace_stays_until_its_deployments_have_ended(
    known: KnownOrganizations, server: ClusterServer, store: Store
) -> None:
    store.organizations.delete("acme", force=True)
    await known.look()
    assert "acme" in known.names() and ACME in server.cluster.objects
    store.organizations.finish_deletions()
    await known.look()
    assert ACME not in server.cluster.objects


async def test_one_that_is_made_anew_at_once_keeps_it(
    known: KnownOrganizations, server: ClusterServer, store: Store
) -> None:
    delete(store, "acme")
    store.organizations.create("acme")
    await known.look()
    assert server.writes == [] and ACME in server.cluster.objects
    delete(store, "acme")
    await known.look()
    assert ACME not in server.cluster.objects


async def test_one_that_comes_and_goes_between_two_looks_loses_it_too(
    known: KnownOrganizations, server: ClusterServer, store: Store
) -> None:
    store.organizations.create("brief")
    server.cluster.put(tenancy("hotplate", "brief")[0])
    delete(store, "brief")
    await known.look()
    assert namespaces(server) == {"hotplate-t-acme", "hotplate-t-other"}


async def test_a_control_plane_that_was_killed_before_it_looked_removes_it_later(
    known: KnownOrganizations, server: ClusterServer, store: Store
) -> None:
    delete(store, "acme")
    api = server.api()
    again = KnownOrganizations(store, api, "hotplate")
    await again.read()
    await again.look()
    await api.close()
    assert namespaces(server) == {"hotplate-t-other"}


async def test_a_namespace_that_is_not_ours_stays(
    known: KnownOrganizations, server: ClusterServer, store: Store
) -> None:
    server.cluster.objects[ACME]["metadata"]["labels"] = {"team": "a"}
    delete(store, "acme")
    await known.look()
    assert ACME in server.cluster.objects
    assert server.writes == []


async def test_one_whose_removal_is_refused_is_tried_again_and_holds_up_no_other(
    known: KnownOrganizations, server: ClusterServer, store: Store
) -> None:
    delete(store, "acme")
    delete(store, "other")
    server.statuses = [500]
    await known.look()
    assert namespaces(server) == {"hotplate-t-acme"}
    await known.look()
    assert namespaces(server) == set()


@pytest.mark.sqlite
async def test_while_the_database_fails_all_that_was_known_stays(
    known: KnownOrganizations,
    server: ClusterServer,
    store: Store,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with store.database.session() as session:
        session.execute(text("DROP TABLE audit"))
    await known.look()
    assert set(known.names()) == {"acme", "other"}
    assert server.writes == []
    assert "which organizations there are cannot be read now" in caplog.text
