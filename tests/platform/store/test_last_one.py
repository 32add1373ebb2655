"""Two control planes on one database, each asked at once to take a last one away."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from threading import Barrier

import pytest

from hotplate.platform.errors import Conflict
from hotplate.platform.store.database import Database
from hotplate.platform.store.parts import Store
from hotplate.platform.store.records import MemberRole

ROUNDS = 8


def outcomes(*calls: Callable[[], object]) -> list[str]:
    """What becomes of calls that begin at once: `done` or `refused`, in order of the alphabet."""
    start = Barrier(len(calls))

    def tried(call: Callable[[], object]) -> str:
        start.wait()
        try:
            call()
        except Conflict:
            return "refused"
        return "done"

    with ThreadPoolExecutor(len(calls)) as threads:
        return sorted(threads.map(tried, calls))


@contextmanager
def both(url: str) -> Iterator[tuple[Store, Store]]:
    with closing(Store(Database(url))) as one, closing(Store(Database(url))) as two:
        yield one, two


def test_of_two_operators_one_stays(database_url: str) -> None:
    with both(database_url) as (one, two):
        for name in ("ada", "bob"):
            one.identities.ensure_user("acme", name, "")
        for _ in range(ROUNDS):
            for name in ("ada", "bob"):
                one.identities.set_operator(name, operator=True)
            assert outcomes(
                lambda: one.identities.set_operator("ada", operator=False),
                lambda: two.identities.set_operator("bob", operator=False),
            ) == ["done", "refused"]


@pytest.mark.parametrize("how", ["demote", "remove"])
def test_of_two_admins_one_stays(database_url: str, how: str) -> None:
    with both(database_url) as (one, two):
        tenant = one.identities.ensure_user("acme", "ada", "").organization

        def leave(store: Store, name: str) -> None:
            if how == "remove":
                store.identities.remove_member(tenant, name)
            else:
                store.identities.put_member(tenant, name, None, MemberRole.DEVELOPER)

        for _ in range(ROUNDS):
            for name in ("ada", "bob"):
                one.identities.put_member(tenant, name, None, MemberRole.ADMIN)
            assert outcomes(lambda: leave(one, "ada"), lambda: leave(two, "bob")) == [
                "done",
                "refused",
            ]


def test_a_token_that_is_kept_is_an_operators_again_with_its_owner(database_url: str) -> None:
    with closing(Store(Database(database_url))) as store:
        ada = store.identities.ensure_user("acme", "ada", "")
        store.identities.ensure_user("acme", "bob", "")
        store.identities.set_operator("bob", operator=True)
        store.identities.set_operator("ada", operator=True)
        secret = store.tokens.add_token(ada, "admin", operator=True)
        store.identities.set_operator("ada", operator=False)
        store.identities.set_operator("ada", operator=True)
        store.tokens.add_token(ada, "admin", secret, operator=True)
        found = store.tokens.find_token(secret)
        assert found is not None
        assert found.operator
