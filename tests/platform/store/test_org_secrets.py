"""Secrets in the database, encrypted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from hotplate.platform.errors import CannotStart, Conflict, Invalid, NotFound, SecretsUnreadable
from hotplate.platform.processes.key_file import KeyFile
from hotplate.platform.spec.fields import Fields
from hotplate.platform.spec.secret_content import SecretContent, secret_content
from hotplate.platform.store.artifacts import ArtifactDraft
from hotplate.platform.store.database import Database
from hotplate.platform.store.deployments import RevisionDraft
from hotplate.platform.store.learnt import LearntValues
from hotplate.platform.store.org_secrets import encrypt_anew
from hotplate.platform.store.parts import Store
from hotplate.platform.store.records import Kind, User
from hotplate.platform.store.sealed_keys import SealedKeys

VALUE = "hf_0123456789"


@pytest.fixture(params=["keys in a file", "keys in the database"])
def kept(request: pytest.FixtureRequest, database_url: str, tmp_path: Path) -> Iterator[Store]:
    database = Database(database_url)
    keys: KeyFile | SealedKeys = KeyFile(tmp_path / "secret-keys")
    if request.param == "keys in the database":
        keys = SealedKeys(LearntValues(database), "of the cluster")
    keys.begin(0)
    store = Store(database, keys=keys)
    yield store
    store.close()


@pytest.fixture
def ada(kept: Store) -> User:
    return kept.identities.ensure_user("acme", "ada", "ada@example.com")


def content(*items: tuple[str, str | None], **given: Any) -> SecretContent:
    described = [{"key": key, "value": value} for key, value in items or [("TOKEN", VALUE)]]
    return secret_content(Fields({"type": "env", "items": described, **given}))


def shown(store: Store, *names: str, organization: str = "acme") -> dict[str, str]:
    return {each.key: each.value for each in store.secrets.values(organization, names)}


def draft(store: Store, user: User, *names: str) -> RevisionDraft:
    tenant = user.organization.id
    store.artifacts.ensure_repository(tenant, Kind.BENTO, "echo", "")
    bento = store.artifacts.create(tenant, Kind.BENTO, "echo", ArtifactDraft("v1"))
    return RevisionDraft(bento.id, {"secrets": list(names)})


def rows(store: Store, statement: str, **values: Any) -> list[Any]:
    with store.database.session() as session:
        done = session.execute(text(statement), values)
        return list(done.all()) if statement.startswith("SELECT") else []


def test_a_value_is_for_replicas_and_nobody_else(kept: Store, ada: User) -> None:
    made = kept.secrets.create(ada, "hf", "the hub", content(("TOKEN", VALUE), ("USER", "ada")))
    assert (made.name, made.description) == ("hf", "the hub")
    assert [(item.key, item.value) for item in made.content.items] == [
        ("TOKEN", None),
        ("USER", None),
    ]
    assert kept.secrets.find(ada.organization.id, "hf") == made
    assert kept.secrets.of_organization(ada.organization.id) == [made]
    assert shown(kept, "hf") == {"TOKEN": VALUE, "USER": "ada"}
    assert VALUE.encode() not in b"".join(
        bytes(row[0]) for row in rows(kept, "SELECT sealed FROM secret_values")
    )
    with pytest.raises(Conflict, match="secret 'hf': one of that name exists"):
        kept.secrets.create(ada, "hf", "", content())


def test_another_organization_has_none_of_it(kept: Store, ada: User) -> None:
    kept.secrets.create(ada, "hf", "", content())
    eve = kept.identities.ensure_user("evil", "eve", "eve@example.com")
    tenant = eve.organization.id
    assert kept.secrets.of_organization(tenant) == []
    for call in (
        lambda: kept.secrets.find(tenant, "hf"),
        lambda: kept.secrets.change(tenant, "hf", content(), None),
        lambda: kept.secrets.delete(tenant, "hf"),
        lambda: kept.secrets.values("evil", ["hf"]),
    ):
        with pytest.raises(NotFound):
            call()
    with pytest.raises(Invalid, match="secrets: there is no 'hf' in this organization"):
        kept.deployments.create(eve, "thief", draft(kept, eve, "hf"))
    kept.secrets.create(eve, "hf", "", content(("TOKEN", "hers")))
    assert shown(kept, "hf") == {"TOKEN": VALUE}
    assert shown(kept, "hf", organization="evil") == {"TOKEN": "hers"}


def test_a_change_replaces_what_it_gives_a_value_and_drops_what_it_leaves_out(
    kept: Store, ada: User
) -> None:
    tenant = ada.organization.id
    kept.secrets.create(ada, "hf", "the hub", content(("A", "a"), ("B", "b"), ("C", "c")))
    versions = {each.key: each.version for each in kept.secrets.values("acme", ["hf"])}
    changed = kept.secrets.change(
        tenant, "hf", content(("C", "new"), ("A", None), ("D", "d")), None
    )
    assert ([item.key for item in changed.content.items], changed.description) == (
        ["C", "A", "D"],
        "the hub",
    )
    assert shown(kept, "hf") == {"C": "new", "A": "a", "D": "d"}
    kept.secrets.change(tenant, "hf", content(("C", "new"), ("A", "a"), ("D", "e")), "other")
    after = {each.key: each.version for each in kept.secrets.values("acme", ["hf"])}
    assert after["A"] == versions["A"], "the same value again is no other version"
    assert after["C"] != versions["C"]
    with pytest.raises(Invalid, match=r"items\[0\].value: the key 'E' has none yet"):
        kept.secrets.change(tenant, "hf", content(("E", None)), None)
    with pytest.raises(Invalid, match="with another type each of them needs its value"):
        kept.secrets.change(tenant, "hf", content(("A", None), type="mountfile"), None)
    assert set(shown(kept, "hf")) == {"C", "A", "D"}


def test_what_a_deployment_names_exists_and_stays(kept: Store, ada: User) -> None:
    tenant = ada.organization.id
    for name, key in (("one", "A"), ("two", "B"), ("three", "A")):
        kept.secrets.create(ada, name, "", content((key, name)))
    with pytest.raises(Invalid, match="there is no 'four'"):
        kept.deployments.create(ada, "echo", draft(kept, ada, "one", "four"))
    with pytest.raises(Invalid, match="'one' and 'three' both have the key 'A'"):
        kept.deployments.create(ada, "echo", draft(kept, ada, "one", "three"))
    echo = kept.deployments.create(ada, "echo", draft(kept, ada, "one", "two"))
    kept.deployments.create(ada, "other", draft(kept, ada, "one"))
    with pytest.raises(Conflict, match="secret 'one' is used by the deployments 'echo', 'other'"):
        kept.secrets.delete(tenant, "one")
    with pytest.raises(
        Invalid, match="the deployment 'echo': 'one' and 'two' both have the key 'A'"
    ):
        kept.secrets.change(tenant, "two", content(("A", "x")), None)
    assert shown(kept, "two") == {"B": "two"}, "nothing of it is changed"
    kept.deployments.update(echo.id, draft(kept, ada), None)
    with pytest.raises(Conflict, match="by the deployment 'other'"):
        kept.secrets.delete(tenant, "one")
    kept.secrets.delete(tenant, "two")
    kept.deployments.delete(kept.deployments.find(tenant, "other").id)
    kept.secrets.delete(tenant, "one")
    assert [each.name for each in kept.secrets.of_organization(tenant)] == ["three"]
    with pytest.raises(NotFound, match="'one' does not exist any longer"):
        kept.secrets.values("acme", ["three", "one"])


@pytest.mark.parametrize(
    "move",
    [
        "UPDATE secret_values SET key = CASE key WHEN 'A' THEN 'B2' ELSE key END",
        "UPDATE secret_values SET sealed = (SELECT sealed FROM secret_values WHERE key = 'B')"
        " WHERE key = 'A'",
        "UPDATE secret_values SET secret_id = (SELECT id FROM secrets WHERE name = 'two')"
        " WHERE key = 'A'",
        "UPDATE secrets SET name = 'three' WHERE name = 'one'",
        "UPDATE secrets SET organization_id = (SELECT id FROM organizations WHERE name = 'evil')"
        " WHERE name = 'one'",
    ],
)
def test_a_row_that_was_moved_in_the_database_does_not_decrypt(
    kept: Store, ada: User, move: str
) -> None:
    kept.identities.ensure_user("evil", "eve", "eve@example.com")
    kept.secrets.create(ada, "one", "", content(("A", "a"), ("B", "b")))
    kept.secrets.create(ada, "two", "", content(("C", "c")))
    rows(kept, move)
    asked = [
        (organization, name)
        for organization in ("acme", "evil")
        for name in ("one", "two", "three")
    ]
    refused = 0
    for organization, name in asked:
        try:
            kept.secrets.values(organization, [name])
        except SecretsUnreadable as error:
            assert "was changed or moved" in str(error)
            refused += 1
        except NotFound:
            pass
    assert refused == 1


async def test_a_new_key_encrypts_all_anew_and_the_old_one_goes(kept: Store, ada: User) -> None:
    for n in range(130):
        kept.secrets.create(ada, f"s{n}", "", content((f"K{n}", str(n)), ("B", "b")))
    (old,) = kept.secrets.key_uses()
    assert (old.encrypts, old.values) == (True, 260)
    kept.secrets.add_key()
    kept.secrets.create(ada, "new", "", content())
    assert [(use.encrypts, use.values) for use in kept.secrets.key_uses()] == [
        (True, 1),
        (False, 260),
    ]
    await encrypt_anew(kept.secrets)
    (new,) = kept.secrets.key_uses()
    assert (new.id != old.id, new.encrypts, new.values) == (True, True, 261)
    assert shown(kept, "s7", "new") == {"K7": "7", "B": "b", "TOKEN": VALUE}
    kept.secrets.check_keys()


async def test_a_value_that_cannot_be_read_keeps_its_key_and_stops_no_other(
    kept: Store, ada: User
) -> None:
    kept.secrets.create(ada, "one", "", content(("A", "a"), ("B", "b")))
    rows(kept, "UPDATE secret_values SET key = 'C' WHERE key = 'A'")
    kept.secrets.add_key()
    await encrypt_anew(kept.secrets)
    assert [use.values for use in kept.secrets.key_uses()] == [1, 1]


def test_another_installations_keys_are_noticed_at_the_start(
    kept: Store, ada: User, database_url: str, tmp_path: Path
) -> None:
    kept.secrets.create(ada, "hf", "", content())
    foreign = KeyFile(tmp_path / "foreign")
    foreign.begin(0)
    other = Store(Database(database_url), keys=foreign)
    assert other.secrets.encrypted() == 1
    with pytest.raises(CannotStart, match=r"lack [0-9a-f]{16}, .* \(1 values\)"):
        other.secrets.check_keys()
    other.close()
