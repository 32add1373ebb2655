"""One process's part of a load test: asks when it is time to, and writes down what came of it."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPException
from time import perf_counter as clock
from urllib.parse import quote, urlsplit

import gevent
from gevent.pool import Group

from connections import Answer, Connections
from plan import Plan
from records import Records
from server_sent_events import EventReader
from task_states import COMPLETED, RUNNING, pause_s

FLUSH_S = 0.25
LATE_S = 1.0
"""How long after its end a load test still sends what it could not send before."""
UNANSWERED_S = 0.1
"""When a user of a closed loop who was refused, or not answered, asks again."""
NO_ANSWER, FAILED = 0, 500
REFUSALS = frozenset({429, 503})


@dataclass
class Asked:
    """One request so far."""

    status: int = NO_ANSWER
    first_byte_at: float = math.nan
    events: int = 0
    text: str = ""
    """Why there was no success."""

    def answered(self, answer: Answer) -> None:
        self.status = answer.status_code
        if not answer.succeeded:
            self.text = answer.excerpt.decode(errors="replace")


class Share:
    """The requests of `plan` whose number modulo its processes is this one's."""

    def __init__(self, plan: Plan, process: int, count: Callable[[float, str], None]) -> None:
        """`count` is told of each request how long it took, and what went wrong or nothing.

        Raises OSError, and ValueError for a URL that is none.
        """
        self._plan = plan
        self._process = process
        self._count = count
        self._zero = clock() + plan.started_at - time.time()
        self._records = Records(plan.folder, process)
        self._connections = Connections(plan.url)
        self._path = urlsplit(plan.url).path + plan.route
        self._running = Group()
        self._ask = {"call": self._call, "stream": self._stream, "task": self._task}[plan.kind]
        fields = {"Authorization": f"Bearer {plan.token}"} if plan.token else {}
        names = [{plan.organization_header: name} for name in plan.organizations] or [{}]
        self._callers = [fields | name for name in names]
        self._of_body = {"Content-Type": plan.content_type}
        self._head = [
            self._connections.head("POST", self._path, self._of_body | caller)
            for caller in self._callers
        ]

    def run(self) -> None:
        """Returns when everything is over. Raises OSError where samples cannot be written."""
        flushing = gevent.spawn(self._flush_on, gevent.getcurrent())
        try:
            self._sleep_until(0.0)
            if self._plan.users:
                self._let_users_ask()
            else:
                self._ask_when_due()
            self._running.join()
        finally:
            flushing.kill(block=False)
            self._running.kill(block=False)  # what is cut off by us is no failure of the server's
            self._records.flush()

    def _now(self) -> float:
        """Seconds since second 0."""
        return clock() - self._zero

    def _sleep_until(self, at_s: float) -> None:
        """Up to 1 ms longer: the event loop's timers have whole milliseconds."""
        left_s = at_s - self._now()
        if left_s > 0:
            gevent.sleep(left_s)

    def _flush_on(self, asking: gevent.Greenlet) -> None:
        while True:
            gevent.sleep(FLUSH_S)
            try:
                self._records.flush()
            except OSError as error:
                gevent.kill(asking, error)
                return

    def _ask_when_due(self) -> None:
        """The open loop: nothing waits for an answer."""
        due_s, turns = self._plan.due_s, self._plan.turns
        for number in range(self._process, len(due_s), self._plan.processes):
            self._sleep_until(due_s[number])
            if self._now() > self._plan.duration_s + LATE_S:
                return
            organization = turns[number % len(turns)]
            self._running.spawn(self._ask_once, number, organization, due_s[number])

    def _let_users_ask(self) -> None:
        """The closed loop: each user waits for its answer, and asks again."""
        due_s = self._plan.due_s
        for user in range(self._process, len(due_s), self._plan.processes):
            self._sleep_until(due_s[user])
            self._running.spawn(self._ask_on, user)

    def _ask_on(self, user: int) -> None:
        turns = self._plan.turns
        number = user
        while (due_s := self._now()) < self._plan.duration_s:
            status = self._ask_once(number, turns[user % len(turns)], due_s)
            number += self._plan.users
            if status == NO_ANSWER or status in REFUSALS:
                gevent.sleep(UNANSWERED_S)

    def _ask_once(self, number: int, organization: int, due_s: float) -> int:
        asked, sent_s, limit_s = Asked(), self._now(), self._plan.timeout_s
        too_late = TimeoutError(f"there was no answer within {limit_s:g} s")
        try:
            with gevent.Timeout(limit_s, too_late):
                self._ask(asked, organization, self._payload(number))
        except (OSError, HTTPException, ValueError) as error:
            asked.status = NO_ANSWER
            asked.text = str(error) or type(error).__name__
        end_s = self._now()
        self._records.add(
            due_s,
            sent_s,
            asked.first_byte_at - self._zero,
            end_s,
            asked.status,
            organization,
            asked.events,
            number,
        )
        if asked.text:
            self._records.complain(asked.status, asked.text)
        self._count(end_s - due_s, asked.text)
        return asked.status

    def _payload(self, number: int) -> bytes:
        return self._plan.payloads[number % len(self._plan.payloads)]

    def _call(self, asked: Asked, organization: int, payload: bytes) -> None:
        answer = self._connections.ask(self._head[organization], payload)
        asked.first_byte_at = answer.first_byte_at
        asked.answered(answer)

    def _stream(self, asked: Asked, organization: int, payload: bytes) -> None:
        """Counts server-sent events; of another kind of stream, its pieces as they come."""
        events = EventReader()
        last_at = 0.0

        def take(answer: Answer, piece: bytes) -> None:
            nonlocal last_at
            if "event-stream" in answer.get("content-type", ""):
                count = len(events.feed(piece))
            else:
                count = 1
            for _ in range(count):
                if asked.events:
                    self._records.add_gap(answer.received_at - last_at)
                else:
                    asked.first_byte_at = answer.received_at
                asked.events += 1
                last_at = answer.received_at

        answer = self._connections.ask(self._head[organization], payload, take)
        asked.answered(answer)

    def _task(self, asked: Asked, organization: int, payload: bytes) -> None:
        """Submits the task, asks for its status until it has ended, and fetches its result."""
        submitted = self._task_call(organization, "POST", "submit", payload)
        if not submitted.succeeded:
            asked.answered(submitted)
            return
        began = clock()
        query = "?task_id=" + quote(_field(submitted, "task_id"))
        ended = ""
        while not ended:
            gevent.sleep(pause_s(clock() - began))
            told = self._task_call(organization, "GET", "status" + query)
            if not told.succeeded:
                asked.answered(told)
                return
            state = _field(told, "status")
            ended = "" if state in RUNNING else state
        result = self._task_call(organization, "GET", "get" + query)
        asked.first_byte_at = result.first_byte_at
        asked.answered(result)
        if ended != COMPLETED and result.succeeded:
            asked.status, asked.text = FAILED, f"the task ended as {ended}"

    def _task_call(self, organization: int, method: str, verb: str, payload: bytes = b"") -> Answer:
        path, caller = f"{self._path}/{verb}", self._callers[organization]
        head = self._connections.head(method, path, self._of_body | caller)
        return self._connections.ask(head, payload)


def _field(answer: Answer, name: str) -> str:
    """A field of a JSON object. Raises ValueError if there is none."""
    told = json.loads(answer.excerpt)
    if not isinstance(told, dict) or name not in told:
        raise ValueError(f"the answer has no {name!r}; is the route one of a task?")
    return str(told[name])
