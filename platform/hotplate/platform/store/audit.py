"""Who changed what, and who was refused: a line each, which nothing removes before its time.

A change records its line in its own transaction (`record_audit`), so that there is none without the
other. On whose behalf a call is made travels with it from the request into the store's thread
(`ACTOR`); without anybody, as when the controller writes, nothing is recorded. An organization
stands in a line by its name, so that its lines outlive it.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, delete, func, select, update
from sqlalchemy.orm import Session

from hotplate.platform.store.database import StorePart
from hotplate.platform.store.tables import AuditRow, utc_now

DONE, REFUSED = "done", "refused"
TEXT_CHARACTERS = 300
"""A caller may name things of any length."""


@dataclass(frozen=True)
class Actor:
    """On whose behalf a call is made."""

    name: str = ""
    """The user; empty = nobody is known."""
    token: str = ""
    """The name of the token; empty = a browser's sign-in, or none."""
    organization: str = ""
    address: str = ""
    request_id: str = ""


ACTOR: ContextVar[Actor | None] = ContextVar("actor", default=None)


@dataclass(frozen=True)
class AuditLine:
    """What happened once, or several times within a minute."""

    id: int
    at: datetime
    actor: str
    token: str
    organization: str
    action: str
    """`deployment.update`, `secret.create`, `login.refused`, …"""
    object: str
    outcome: str
    """`done` or `refused`."""
    address: str
    request_id: str
    changes: Mapping[str, Any]
    count: int
    """How often it was tried: refusals of one minute that are alike are one line."""


@dataclass(frozen=True)
class AuditFilter:
    """Which lines are asked for; empty or None = all."""

    organization: str = ""
    since: datetime | None = None
    until: datetime | None = None
    actor: str = ""
    action: str = ""
    """An action, or the first part of some: `deployment`."""
    before: int | None = None
    """Only lines with a smaller id: those after the last one of a page."""


def record_audit(
    session: Session,
    action: str,
    object_name: str,
    changes: Mapping[str, Any] | None = None,
    organization: str | None = None,
    by: str = "",
) -> None:
    """Records a change in its transaction; nothing where nobody is known to make it.

    `organization`: whose it is; None = the one that the actor acts for. `by`: who makes it, where
    that is found out with it, as in a sign-in.
    """
    actor = ACTOR.get()
    if actor is not None:
        whose = actor.organization if organization is None else organization
        actor = replace(actor, name=by) if by else actor
        session.add(_row(actor, action, object_name, DONE, changes or {}, whose))


class Audit(StorePart):
    """The lines of all organizations."""

    def refuse(
        self,
        actor: Actor,
        action: str,
        object_name: str,
        changes: Mapping[str, Any],
        count: int = 1,
    ) -> int:
        """Records a try that was refused, or some that are alike; the id of the line."""
        with self._database.session() as session:
            row = _row(actor, action, object_name, REFUSED, changes, actor.organization)
            row.count = count
            session.add(row)
            session.flush()
            return row.id

    def record(self, action: str, object_name: str, changes: Mapping[str, Any]) -> None:
        """Records what changed nothing in the database, and no organization's things alone."""
        with self._database.session() as session:
            record_audit(session, action, object_name, changes, organization="")

    def count(self, line_id: int, count: int) -> None:
        """How often the refused try of a line has been made."""
        with self._database.session() as session:
            session.execute(update(AuditRow).where(AuditRow.id == line_id).values(count=count))

    def page(self, wanted: AuditFilter, count: int) -> tuple[list[AuditLine], int]:
        """The newest lines, and how many there are on all pages."""
        these = _conditions(wanted)
        with self._database.session() as session:
            total = session.scalar(select(func.count()).select_from(AuditRow).where(*these)) or 0
            if wanted.before is not None:
                these.append(AuditRow.id < wanted.before)
            query = select(AuditRow).where(*these).order_by(AuditRow.id.desc()).limit(count)
            return [_line(row) for row in session.scalars(query)], total

    def done(self, action: str, after: int) -> list[AuditLine]:
        """What of this was done, oldest first; those with larger ids than `after`."""
        query = select(AuditRow).where(
            AuditRow.id > after, AuditRow.action == action, AuditRow.outcome == DONE
        )
        with self._database.session() as session:
            return [_line(row) for row in session.scalars(query.order_by(AuditRow.id))]

    def forget(self, before: datetime) -> int:
        """Removes lines that are older; how many."""
        with self._database.session() as session:
            gone = session.execute(
                delete(AuditRow).where(AuditRow.at < before).returning(AuditRow.id)
            )
            return len(gone.all())


def _row(
    actor: Actor,
    action: str,
    object_name: str,
    outcome: str,
    changes: Mapping[str, Any],
    organization: str,
) -> AuditRow:
    return AuditRow(
        at=utc_now(),
        actor=actor.name,
        token=actor.token,
        organization=organization,
        action=action,
        object=_text(object_name),
        outcome=outcome,
        address=actor.address,
        request_id=_text(actor.request_id),
        changes=dict(changes),
    )


def _text(given: str) -> str:
    """What a caller has sent, so that every database keeps it: any bytes may come."""
    clean = given[:TEXT_CHARACTERS].encode(errors="replace").decode()
    return clean.replace("\x00", "?")


def _conditions(wanted: AuditFilter) -> list[ColumnElement[bool]]:
    these: list[ColumnElement[bool]] = []
    if wanted.organization:
        these.append(AuditRow.organization == wanted.organization)
    if wanted.since is not None:
        these.append(AuditRow.at >= wanted.since)
    if wanted.until is not None:
        these.append(AuditRow.at <= wanted.until)
    if wanted.actor:
        these.append(AuditRow.actor == wanted.actor)
    if wanted.action:
        exact, below = AuditRow.action == wanted.action, f"{wanted.action}."
        these.append(exact | AuditRow.action.startswith(below, autoescape=True))
    return these


def _line(row: AuditRow) -> AuditLine:
    names = AuditLine.__dataclass_fields__
    return AuditLine(**{name: getattr(row, name) for name in names})
