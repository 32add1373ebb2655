"""Secrets of organizations: their values are encrypted here, and decrypted for replicas only."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Select, delete, func, or_, select
from sqlalchemy.orm import Session

from hotplate.platform.errors import CannotStart, Conflict, Invalid, NotFound, SecretsUnreadable
from hotplate.platform.spec.secret_content import (
    SecretContent,
    SecretItem,
    SecretStage,
    SecretType,
    check_together,
    named,
    named_together,
)
from hotplate.platform.store.audit import record_audit
from hotplate.platform.store.database import Database, StorePart
from hotplate.platform.store.identities import organization_record, user_record
from hotplate.platform.store.keyring import Keyring, KeySource, SecretKey
from hotplate.platform.store.records import DesiredState, KeyUse, Secret, User
from hotplate.platform.store.tables import (
    DeploymentRow,
    OrganizationRow,
    RevisionRow,
    SecretRow,
    SecretValueRow,
    new_uid,
    utc_now,
)
from hotplate.serving.gateway.protocol.version_mark import VERSION
from hotplate.serving.replica.secret_values import SecretValue

ROWS_AT_ONCE = 100
"""So many values are encrypted anew in one transaction: others wait no longer."""

log = logging.getLogger("hotplate.secrets")


class Secrets(StorePart):
    """Makes, changes, finds and removes secrets, and keeps them encrypted with the newest key."""

    def __init__(self, database: Database, keys: KeySource) -> None:
        super().__init__(database)
        self._keys = keys

    def create(self, creator: User, name: str, description: str, content: SecretContent) -> Secret:
        """Raises Conflict where the name is taken, Invalid where a value is missing."""
        tenant = creator.organization.id
        with self._keys.held():
            keyring = self._keys.keyring()

            def add(session: Session) -> Secret:
                if session.scalar(_by_name(tenant, [name])) is not None:
                    raise Conflict(
                        f"secret {name!r}: one of that name exists; change it with 'bentoml secret "
                        "apply', or choose another name"
                    )
                row = SecretRow(
                    organization_id=tenant,
                    creator_id=creator.id,
                    name=name,
                    description=description,
                    type=content.type,
                    stage=content.stage,
                    path=content.path,
                )
                session.add(row)
                session.flush()
                session.refresh(row)
                _put_values(session, keyring, row, content)
                record_audit(session, "secret.create", name, _told(content))
                return _records(session, [row])[0]

            return self._database.settle_races(add)

    def change(
        self, tenant: int, name: str, content: SecretContent | None, description: str | None
    ) -> Secret:
        """Another content; an item without a value keeps its own, and what is None stays as it is.
        Replicas that start from now on get it. Raises NotFound, Invalid."""
        with self._keys.held(), self._database.together(), self._database.session() as session:
            row = _existing(session, tenant, name)
            if description is not None:
                row.description, row.updated_at = description, utc_now()
            if content is None:
                record_audit(session, "secret.update", name, {"description": row.description})
                return _records(session, [row])[0]
            if row.type != content.type and any(item.value is None for item in content.items):
                raise Invalid("content.items: with another type each of them needs its value")
            row.type, row.stage, row.path = content.type, content.stage, content.path
            row.updated_at = utc_now()
            _put_values(session, self._keys.keyring(), row, content)
            record_audit(session, "secret.update", name, _told(content))
            for deployment, config in _in_use(session, tenant):
                for together in named_together(config):
                    if name in together:
                        at = f"content.items: the deployment {deployment!r}"
                        check_together(_contents(session, tenant, together), at)
            return _records(session, [row])[0]

    def delete(self, tenant: int, name: str) -> Secret:
        """Raises NotFound, and Conflict where a deployment names it."""
        with self._database.session() as session:
            row = _existing(session, tenant, name)
            users = sorted(
                {who for who, config in _in_use(session, tenant) if name in named(config)}
            )
            if users:
                raise Conflict(
                    f"secret {name!r} is used by {_listed(users)}; update or delete what uses it "
                    "first"
                )
            gone = _records(session, [row])[0]
            session.execute(delete(SecretRow).where(SecretRow.id == row.id))
            record_audit(session, "secret.delete", name)
            return gone

    def find(self, tenant: int, name: str) -> Secret:
        """Raises NotFound."""
        with self._database.session() as session:
            return _records(session, [_existing(session, tenant, name)])[0]

    def of_organization(self, tenant: int) -> list[Secret]:
        """All of them, by name."""
        with self._database.session() as session:
            rows = session.scalars(
                select(SecretRow)
                .where(SecretRow.organization_id == tenant)
                .order_by(SecretRow.name)
            )
            return _records(session, rows.all())

    def values(self, organization: str, names: Sequence[str]) -> list[SecretValue]:
        """The values of these secrets of the organization of that name, in clear. Raises NotFound
        where one is gone, SecretsUnreadable where one cannot be decrypted."""
        with self._database.together(), self._database.session() as session:
            found = session.execute(
                select(SecretRow, SecretValueRow)
                .join(SecretValueRow, SecretValueRow.secret_id == SecretRow.id)
                .join(OrganizationRow, OrganizationRow.id == SecretRow.organization_id)
                .where(OrganizationRow.name == organization, SecretRow.name.in_(names))
                .order_by(SecretRow.name, SecretValueRow.position)
            ).all()
            missing = set(names) - {row.name for row, _ in found}
            if missing:
                raise NotFound(f"secret {min(missing)!r} does not exist any longer")
            keyring = self._keys.keyring() if found else Keyring(())
            return [_value(keyring, row, value) for row, value in found]

    # Keys ----------------------------------------------------------------------------------

    def encrypted(self) -> int:
        """How many values there are."""
        with self._database.session() as session:
            return session.scalar(select(func.count()).select_from(SecretValueRow)) or 0

    def check_keys(self) -> None:
        """Whether every value has its key. Raises CannotStart."""
        known = {key.id for key in self._keys.keyring().keys}
        with self._database.session() as session:
            used = _counted(session)
        if lacking := sorted(used.keys() - known):
            raise CannotStart(
                f"the keys of secrets lack {lacking[0]}, with which secrets are encrypted "
                f"({used[lacking[0]]} values); put those back that have it: these are another "
                "installation's, or older than the last 'hotplate key rotate'"
            )

    def key_uses(self) -> list[KeyUse]:
        """All keys, the newest first."""
        keyring = self._keys.keyring()
        with self._database.session() as session:
            used = _counted(session)
        return [
            KeyUse(key.id, key.made_at, key == keyring.encrypts, used.get(key.id, 0))
            for key in reversed(keyring.keys)
        ]

    def add_key(self) -> None:
        """Make a key with which everything is encrypted from now on; it is kept before that."""
        keys = self._keys.held(alone=True)
        with keys, self._database.together(), self._database.session() as session:
            key = SecretKey.new()
            record_audit(session, "key.rotate", key.id, organization="")
            self._keys.keep(Keyring((*self._keys.keyring().keys, key)))

    def encrypt_some_anew(self, after: int = 0) -> int:
        """Encrypt values that an older key has encrypted with the newest one; those with ids above
        `after`. The last one's id, or 0 when there are no more."""
        last = 0
        with self._keys.held(), self._database.together(), self._database.session() as session:
            keyring = self._keys.keyring()
            rows = session.execute(
                select(SecretRow, SecretValueRow)
                .join(SecretValueRow, SecretValueRow.secret_id == SecretRow.id)
                .where(SecretValueRow.key_id != keyring.encrypts.id, SecretValueRow.id > after)
                .order_by(SecretValueRow.id)
                .limit(ROWS_AT_ONCE)
                .with_for_update(of=SecretValueRow)
            )
            for row, value in rows.all():
                last = value.id
                place = _place(row, value.key)
                try:
                    clear = keyring.unseal(value.key_id, value.sealed, place)
                except SecretsUnreadable as error:  # it stays as it is, and so does its key
                    log.warning("%s", error)
                    continue
                value.key_id, value.sealed = keyring.seal(clear, place)
        return last

    def drop_unused_keys(self) -> None:
        """Forget the older keys that nothing is encrypted with."""
        with self._keys.held(alone=True):
            keyring = self._keys.keyring()
            with self._database.session() as session:
                used = _counted(session)
            unused = [key.id for key in keyring.keys[:-1] if key.id not in used]
            if unused:
                self._keys.keep(keyring.without(unused))


async def encrypt_anew(secrets: Secrets) -> None:
    """Encrypt with the newest key what an older one has encrypted, a little at a time, and drop the
    keys that nobody needs then; goes on where a kill has cut it. Raises SecretsUnreadable."""
    after = 0
    while after := await secrets.run(secrets.encrypt_some_anew, after):
        pass
    await secrets.run(secrets.drop_unused_keys)


def check_named(session: Session, tenant: int, config: Mapping[str, Any]) -> None:
    """Whether the organization has all secrets that a deployment's config names, and one replica
    can have them together; they stay until the transaction is over. Raises Invalid."""
    for together in named_together(config):
        contents = _contents(session, tenant, together)
        for name in together:
            if name not in contents:
                raise Invalid(
                    f"secrets: there is no {name!r} in this organization; make it with "
                    f"'bentoml secret create {name} KEY=VALUE'"
                )
        check_together(contents)


def _put_values(session: Session, keyring: Keyring, row: SecretRow, content: SecretContent) -> None:
    """Raises Invalid where a value is missing."""
    before = {
        value.key: value
        for value in session.scalars(
            select(SecretValueRow).where(SecretValueRow.secret_id == row.id)
        )
    }
    for position, item in enumerate(content.items):
        value = before.pop(item.key, None)
        if item.value is None and value is None:
            raise Invalid(f"content.items[{position}].value: the key {item.key!r} has none yet")
        if value is None:
            value = SecretValueRow(secret_id=row.id, key=item.key)
            session.add(value)
        value.position, value.sub_path = position, item.sub_path
        if item.value is not None:
            if not _is(keyring, row, value, item.value):
                value.version = new_uid()
            value.size_bytes = item.size_bytes
            value.key_id, value.sealed = keyring.seal(item.value, _place(row, item.key))
    for gone in before.values():
        session.delete(gone)
    session.flush()
    check_together({row.name: _contents(session, row.organization_id, [row.name])[row.name]})


def _is(keyring: Keyring, row: SecretRow, value: SecretValueRow, clear: str) -> bool:
    """Whether the row has that value already."""
    if value.sealed is None:
        return False
    try:
        return keyring.unseal(value.key_id, value.sealed, _place(row, value.key)) == clear
    except SecretsUnreadable:
        return False


def _value(keyring: Keyring, row: SecretRow, value: SecretValueRow) -> SecretValue:
    item = SecretItem(value.key, value.sub_path)
    content, stage = _content(row, [value]), SecretStage(row.stage)
    return SecretValue(
        key=value.key,
        value=keyring.unseal(value.key_id, value.sealed, _place(row, value.key)),
        file=content.file_of(item),
        builds=stage.builds,
        runs=stage.runs,
        version=value.version,
    )


def _place(row: SecretRow, key: str) -> tuple[str, ...]:
    """What a value is bound to."""
    return (row.organization.uid, row.name, key)


def _existing(session: Session, tenant: int, name: str) -> SecretRow:
    """For a change: whoever makes use of it meanwhile waits."""
    row = session.scalar(_by_name(tenant, [name]).with_for_update(of=SecretRow))
    if row is None:
        raise NotFound(f"secret {name!r:.80} does not exist in this organization")
    return row


def _by_name(tenant: int, names: Iterable[str]) -> Select[SecretRow]:
    return select(SecretRow).where(SecretRow.organization_id == tenant, SecretRow.name.in_(names))


def _counted(session: Session) -> dict[str, int]:
    """How many values each key has encrypted."""
    key_id = SecretValueRow.key_id
    found = session.execute(select(key_id, func.count()).group_by(key_id))
    return {key: count for key, count in found.all()}


def _in_use(session: Session, tenant: int) -> list[tuple[str, Mapping[str, Any]]]:
    """The deployments, and each config that they, or versions of them, serve or shall serve."""
    newest = (
        select(RevisionRow.deployment_id, func.max(RevisionRow.number))
        .group_by(RevisionRow.deployment_id)
        .subquery()
    )
    found = session.execute(
        select(DeploymentRow.name, RevisionRow.config)
        .join(RevisionRow, RevisionRow.deployment_id == DeploymentRow.id)
        .join(newest, RevisionRow.deployment_id == newest.c[0])
        .where(
            DeploymentRow.organization_id == tenant,
            DeploymentRow.wanted != DesiredState.DELETED,
            or_(RevisionRow.number == newest.c[1], RevisionRow.serving),
        )
    )
    return [(name.partition(VERSION)[0], config) for name, config in found.all()]


def _contents(session: Session, tenant: int, names: Sequence[str]) -> dict[str, SecretContent]:
    """Those that there are; they stay until the transaction is over."""
    if not names:
        return {}
    query = _by_name(tenant, names).with_for_update(read=True, of=SecretRow)
    found = {each.name: each.content for each in _records(session, session.scalars(query).all())}
    return {name: found[name] for name in names if name in found}


def _told(content: SecretContent) -> dict[str, Any]:
    """What the audit says of a secret: never a value."""
    keys = [item.key for item in content.items]
    return {"type": content.type, "stage": content.stage, "path": content.path, "keys": keys}


def _records(session: Session, rows: Sequence[SecretRow]) -> list[Secret]:
    values: dict[int, list[SecretValueRow]] = defaultdict(list)
    query = (
        select(SecretValueRow)
        .where(SecretValueRow.secret_id.in_([row.id for row in rows]))
        .order_by(SecretValueRow.position)
    )
    for value in session.scalars(query):
        values[value.secret_id].append(value)
    return [
        Secret(
            id=row.id,
            uid=row.uid,
            organization=organization_record(row.organization),
            creator=user_record(row.creator, row.organization),
            name=row.name,
            description=row.description,
            content=_content(row, values[row.id]),
            created_at=row.created_at,
            updated_at=row.updated_at,
        )
        for row in rows
    ]


def _content(row: SecretRow, values: Iterable[SecretValueRow]) -> SecretContent:
    items = tuple(SecretItem(value.key, value.sub_path, value.size_bytes) for value in values)
    return SecretContent(SecretType(row.type), SecretStage(row.stage), items, row.path)


def _listed(users: Sequence[str]) -> str:
    shown = ", ".join(repr(user) for user in users[:10])
    kind = "the deployment" if len(users) == 1 else "the deployments"
    return f"{kind} {shown}" + (f" and {len(users) - 10} more" if len(users) > 10 else "")
