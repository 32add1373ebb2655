"""Tasks: what was submitted, how it stands, what it has answered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from sqlalchemy import Select, delete, func, or_, select
from sqlalchemy.orm import Session

from hotplate.platform.errors import NotFound
from hotplate.platform.store.database import StorePart
from hotplate.platform.store.deployment_records import deployment_record
from hotplate.platform.store.history import add_event_row
from hotplate.platform.store.records import (
    Artifact,
    DesiredState,
    OfferedTask,
    Task,
    TaskContent,
    Turn,
)
from hotplate.platform.store.tables import DeploymentRow, OrganizationRow, TaskRow, utc_now
from hotplate.platform.store.task_state import Event, Status, TaskState, after

OPEN = (Status.PENDING, Status.IN_PROGRESS)
NOT_FOUND = "task_id not found"
"""In BentoML's words."""


class Tasks(StorePart):
    """Large bodies lie in the blob store; what is read here is never one of them."""

    def add(self, task_id: str, route: str, path: str, content: TaskContent, turn: Turn) -> Task:
        """Keeps what was submitted; from now on it will be run. Raises NotFound for the route."""
        with self._database.session() as session:
            row = TaskRow(
                id=task_id,
                deployment_id=_deployment_id(session, route),
                path=path,
                caller=turn.organization,
                priority=turn.priority,
                version=turn.version,
                status=Status.PENDING,
                input_head=content.head,
                input_body=content.body,
                input_bytes=content.size_bytes,
                input_part=content.part,
            )
            session.add(row)
            session.flush()
            return _record(row)

    def answering_bento(self, route: str) -> Artifact:
        """The bento that answers on a route, or is to. Raises NotFound."""
        with self._database.session() as session:
            row = session.get_one(DeploymentRow, _deployment_id(session, route))
            deployment = deployment_record(session, row)
            return (deployment.serving or deployment.latest).bento

    def get(self, route: str, task_id: str) -> Task:
        """Raises NotFound, also for one of another deployment."""
        with self._database.session() as session:
            return _record(_row(session, route, task_id))

    def change(
        self,
        task_id: str,
        event: Event,
        is_gone: Callable[[str], bool],
        answer: TaskContent | None = None,
        route: str | None = None,
        note: str = "",
    ) -> Task:
        """Lets the event happen to the task; the note becomes an event of its deployment.

        Raises NotFound, and Conflict where it may not happen.
        """
        with self._database.session() as session:
            row = _row(session, route, task_id, locked=True)
            before = TaskState(Status(row.status), row.gateway)
            now = after(before, event, is_gone)
            row.status, row.gateway = now.status, now.gateway
            if now.status is Status.IN_PROGRESS and before.status is Status.PENDING:
                row.executed_at = utc_now()
            if now.status.ended:
                row.completed_at = utc_now()
            if answer is not None:
                row.answer_head, row.answer_body = answer.head, answer.body
                row.answer_bytes, row.answer_part = answer.size_bytes, answer.part
            if note and row.deployment_id is not None:
                add_event_row(session, row.deployment_id, "TaskLost", note)
            session.flush()
            return _record(row)

    def input_of(self, task_id: str) -> tuple[str, TaskContent, Turn]:
        """(the task's path, what was submitted, its turn). Raises NotFound."""
        with self._database.session() as session:
            row = _row(session, None, task_id)
            content = TaskContent(row.input_head, row.input_body, row.input_bytes, row.input_part)
            return row.path, content, Turn(row.caller, row.priority, row.version)

    def answer_of(self, task_id: str) -> TaskContent:
        """Raises NotFound."""
        with self._database.session() as session:
            row = _row(session, None, task_id)
            return TaskContent(row.answer_head, row.answer_body, row.answer_bytes, row.answer_part)

    def unfinished(self) -> list[OfferedTask]:
        """Those that have not ended, of all deployments that were not deleted; oldest first."""
        query = (
            select(
                TaskRow.id,
                TaskRow.caller,
                TaskRow.priority,
                TaskRow.version,
                TaskRow.gateway,
                OrganizationRow.name,
                DeploymentRow.name,
            )
            .join(DeploymentRow, TaskRow.deployment_id == DeploymentRow.id)
            .join(OrganizationRow, DeploymentRow.organization_id == OrganizationRow.id)
            .where(TaskRow.status.in_(OPEN), DeploymentRow.wanted != DesiredState.DELETED)
            .order_by(TaskRow.created_at, TaskRow.id)
        )
        with self._database.session() as session:
            found = session.execute(query)
            return [
                OfferedTask(task_id, f"{owner}/{name}", gateway, Turn(caller, priority, version))
                for task_id, caller, priority, version, gateway, owner, name in found
            ]

    def counts(self, deployment_id: int) -> dict[str, int]:
        """How many of its tasks have each status."""
        query = (
            select(TaskRow.status, func.count())
            .where(TaskRow.deployment_id == deployment_id)
            .group_by(TaskRow.status)
        )
        with self._database.session() as session:
            return {status: count for status, count in session.execute(query)}

    def old(self, before: datetime, limit: int) -> list[str]:
        """Those that ended before, and those whose deployment is gone."""
        query = (
            select(TaskRow.id)
            .where(or_(TaskRow.completed_at < before, TaskRow.deployment_id.is_(None)))
            .limit(limit)
        )
        with self._database.session() as session:
            return list(session.scalars(query))

    def forget(self, task_ids: Sequence[str]) -> None:
        """Their bodies in the blob store are to be gone before."""
        with self._database.session() as session:
            session.execute(delete(TaskRow).where(TaskRow.id.in_(task_ids)))


def _of_route(route: str) -> Select[int]:
    organization, _, name = route.partition("/")
    return (
        select(DeploymentRow.id)
        .join(OrganizationRow, DeploymentRow.organization_id == OrganizationRow.id)
        .where(
            OrganizationRow.name == organization,
            DeploymentRow.name == name,
            DeploymentRow.wanted != DesiredState.DELETED,
        )
    )


def _deployment_id(session: Session, route: str) -> int:
    found = session.scalar(_of_route(route))
    if found is None:
        raise NotFound(f"{route} no longer exists")
    return found


def _row(session: Session, route: str | None, task_id: str, *, locked: bool = False) -> TaskRow:
    query = select(TaskRow).where(TaskRow.id == task_id)
    if route is not None:
        query = query.where(TaskRow.deployment_id.in_(_of_route(route)))
    row = session.scalar(query.with_for_update() if locked else query)
    if row is None:
        raise NotFound(NOT_FOUND)
    return row


def _record(row: TaskRow) -> Task:
    return Task(row.id, row.status, row.created_at, row.executed_at, row.completed_at)
