"""The row that says who acts, and the fence around what the one that acts writes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from sqlalchemy import create_engine, make_url, text

from hotplate.platform.errors import NoLongerLeader
from hotplate.platform.store.database import Database
from hotplate.platform.store.parts import Store
from hotplate.platform.store.records import Term

A = Term(holder="a", url="http://a", process="1 2@boot", place="here")
B = replace(A, holder="b", url="http://b")


def test_a_term_is_taken_renewed_and_given_up(database_url: str) -> None:
    store = Store(Database(database_url))
    row = store.leadership
    assert row.look() == Term()
    assert row.take(Term(), A, 10.0) == 1
    seen = row.look(waits=True)
    assert (seen.epoch, seen.holder, seen.url, seen.place) == (1, "a", "http://a", "here")
    assert 9 < seen.left_s <= 10
    renewed = row.renew(1, 20.0)
    assert renewed is not None
    assert renewed.renewals == 1
    assert 19 < renewed.left_s <= 20
    assert renewed.rival_s < 1
    row.give_up(1)
    given_up = row.look()
    assert (given_up.epoch, given_up.holder) == (1, "")
    assert row.take(given_up, B, 10.0) == 2
    assert row.renew(1, 10.0) is None
    row.give_up(1)  # it is another one's
    assert row.look().holder == "b"
    store.close()


def test_of_two_that_have_seen_the_same_term_one_takes_it(database_url: str) -> None:
    stores = [Store(Database(database_url)) for _ in "ab"]
    seen = Term()
    for epoch in (1, 2):
        with ThreadPoolExecutor(2) as threads:
            taking = [
                threads.submit(store.leadership.take, seen, mine, 10.0)
                for store, mine in zip(stores, (A, B), strict=True)
            ]
            epochs = {future.result() for future in taking}
        assert epochs == {epoch, None}
        seen = stores[0].leadership.look()
    stale = replace(stores[0].leadership.look(), renewals=99)
    assert stores[1].leadership.take(stale, B, 10.0) is None
    for store in stores:
        store.close()


def test_nothing_that_a_former_leader_writes_is_kept(database_url: str) -> None:
    former, now = Store(Database(database_url)), Store(Database(database_url))
    former.database.epoch = former.leadership.take(Term(), A, 10.0)
    former.learnt.put("mine", 1)
    now.database.epoch = now.leadership.take(now.leadership.look(), B, 10.0)
    with pytest.raises(NoLongerLeader, match="acted in epoch 1, and another one does in epoch 2"):
        former.learnt.put("mine", 2)
    with pytest.raises(NoLongerLeader), former.database.together():
        former.learnt.forget("mi")
        former.learnt.put("other", 3)
    assert former.learnt.get("mine") == 1  # it may read
    assert now.learnt.get("other") is None
    now.learnt.put("mine", 4)
    assert former.learnt.get("mine") == 4
    for store in (former, now):
        store.close()


@pytest.mark.parametrize("off_h", [-1, 1])
def test_a_control_plane_whose_database_runs_an_hour_apart_waits_as_long(
    postgresql_server: str, off_h: int
) -> None:
    """The moments of the row are all the database's, so it matters to nobody what time that is."""
    from tests.support.control_plane import postgresql

    url = postgresql.database(postgresql_server)
    engine = create_engine(make_url(url).set(drivername="postgresql+psycopg"))
    with engine.begin() as connection:
        connection.execute(text("CREATE SCHEMA apart"))
        connection.execute(
            text(
                "CREATE FUNCTION apart.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS "
                f"$$SELECT pg_catalog.clock_timestamp() + interval '{off_h} hour'$$"
            )
        )
    engine.dispose()
    apart = {"options": "-c search_path=public,apart,pg_catalog"}
    store = Store(
        Database(make_url(url).update_query_dict(apart).render_as_string(hide_password=False))
    )
    assert store.leadership.take(Term(), A, 10.0) == 1
    assert 9 < store.leadership.look().left_s <= 10
    store.close()
