"""The store's secrets, as replicas that start ask for them."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import text

from hotplate.deploy.errors import PrepareFailed
from hotplate.platform.spec.secret_content import (
    SecretContent,
    SecretItem,
    SecretStage,
    SecretType,
)
from hotplate.platform.store.database import Database
from hotplate.platform.store.parts import Store
from hotplate.platform.store.replica_secrets import StoredSecrets
from hotplate.serving.replica.secret_values import of_build, of_replica

ITEMS = (SecretItem("A", size_bytes=1, value="a"), SecretItem("B", "of", 1, "b"))


def make(store: Store, name: str, kind: SecretType, stage: SecretStage) -> None:
    user = store.identities.ensure_user("acme", "ada", "ada@example.com")
    content = SecretContent(kind, stage, ITEMS, "$BENTOML_HOME/keys")
    store.secrets.create(user, name, "", content)


@pytest.mark.parametrize(
    ("kind", "env", "files"),
    [
        (SecretType.ENV, {"A": "a", "B": "b"}, {}),
        (SecretType.FILE, {}, {"keys/A": "a", "keys/of/B": "b"}),
    ],
)
@pytest.mark.parametrize("stage", list(SecretStage))
async def test_a_stage_says_who_gets_them(
    store: Store,
    stage: SecretStage,
    kind: SecretType,
    env: dict[str, str],
    files: dict[str, str],
) -> None:
    make(store, "one", kind, stage)
    values = await StoredSecrets(store.secrets).values("acme", ["one"])
    for found, gets in (
        (of_build("acme", values), stage is not SecretStage.RUNTIME),
        (of_replica("acme", values), stage is not SecretStage.BUILD),
    ):
        assert (dict(found.env), dict(found.files)) == ((env, files) if gets else ({}, {}))
        assert bool(found) == gets
    assert "'a'" not in repr(values) + repr(of_build("acme", values))


async def test_one_that_is_gone_fails_a_start_and_a_database_that_is_away_only_delays_it(
    tmp_path: Path,
) -> None:
    store = Store(Database(f"sqlite:///{tmp_path}/hotplate.db"))
    make(store, "one", SecretType.ENV, SecretStage.RUNTIME)
    secrets = StoredSecrets(store.secrets)
    with pytest.raises(PrepareFailed, match=r"^Its secret 'two' does not exist any") as gone:
        await secrets.values("acme", ["one", "two"])
    assert not gone.value.no_room
    with store.database.session() as session:
        session.execute(text("UPDATE secret_values SET sealed = x'00'"))
    with pytest.raises(PrepareFailed, match=r"^Its secrets cannot be had: .*changed") as changed:
        await secrets.values("acme", ["one"])
    assert changed.value.no_room, "it is set again, and the start goes on"
    with store.database.session() as session:
        session.execute(text("ALTER TABLE secret_values RENAME TO away"))
    with pytest.raises(PrepareFailed, match=r"^Its secrets cannot be had: the database") as away:
        await secrets.values("acme", ["one"])
    assert away.value.no_room
    store.close()
