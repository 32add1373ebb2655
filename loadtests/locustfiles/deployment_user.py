"""A caller of a deployment: who it is, what it sends, and how often."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException
from typing import Any

from locust import FastHttpUser, constant, constant_throughput
from locust.contrib.fasthttp import ResponseContextManager
from locust.env import Environment

import flags

TIMEOUT_S = 300.0
"""As long as `hotplate loadtest` waits."""
JSON = "application/json"


class DeploymentUser(FastHttpUser):
    """With the options of `flags.py`."""

    abstract = True
    network_timeout = TIMEOUT_S

    _numbers = itertools.count()

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment)
        given: Any = environment.parsed_options
        number = next(self._numbers)
        payloads = flags.payloads(given.payload)
        self._payloads = itertools.islice(itertools.cycle(payloads), number % len(payloads), None)
        turns = flags.turns(given.organizations)
        self.headers = {given.organization_header: turns[number % len(turns)]} if turns else {}
        """They say whose requests these are."""
        self._wait = constant_throughput(given.per_user) if given.per_user else constant(0)
        self.route: str = given.route

    def wait_time(self) -> float:
        return self._wait(self)

    def payload(self) -> bytes:
        """The next one."""
        return next(self._payloads)

    @contextmanager
    def ask(
        self, path: str, body: bytes | None = None, content_type: str = JSON, stream: bool = False
    ) -> Iterator[ResponseContextManager]:
        """Posts the body, or gets where there is none. A redirect is not followed: it is a
        failure, and so is a connection that ends within the block, or an answer that the block
        cannot read."""
        fields = {} if body is None else {"Content-Type": content_type}
        with self.client.request(
            "GET" if body is None else "POST",
            path,
            name=path.partition("?")[0],
            data=body,  # type: ignore[arg-type]  # bytes will do
            headers=fields | self.headers,
            allow_redirects=False,
            catch_response=True,
            stream=stream,
        ) as answer:
            if 300 <= answer.status_code < 400:
                answer.failure(f"a redirect, with status {answer.status_code}")
            try:
                yield answer
            except (HTTPException, OSError, ValueError, LookupError, TypeError) as error:
                answer.failure(error)

    def report(self, what: str, seconds: float, error: Exception | None = None) -> None:
        """Adds a figure of its own to Locust's statistics."""
        self.environment.events.request.fire(
            request_type=what,
            name=self.route,
            response_time=seconds * 1000,
            response_length=0,
            exception=error,
            context={},
        )


def succeeded(answer: ResponseContextManager) -> bool:
    return 200 <= answer.status_code < 300
