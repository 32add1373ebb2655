"""What `hotplate loadtest` runs: each request is sent when its plan says so, and is written down.

    locust -f arrivals.py --headless --plan FOLDER --users N --processes N

`--users` is the number of processes. `plan.py` says what the folder has, when all are ready; the
samples go there, too.
Latency counts from the moment at which a request was due, so that neither a server that answers
slowly nor a process that cannot keep up hides what callers wait (coordinated omission).
"""

from __future__ import annotations

import logging
import os
import resource
from pathlib import Path
from typing import Any

import gevent
from locust import User, events, task
from locust.argument_parser import LocustArgumentParser
from locust.env import Environment
from locust.exception import StopUser
from locust.rpc import Message
from locust.runners import MasterRunner, Runner, WorkerRunner

from plan import Plan
from share import Share

ENDED = "share_ended"
"""What a worker tells the master: the error that has ended it, or none."""
WAIT_S = 0.02
LOOK_S = 1.0


class Arrivals(User):
    """One in each process."""

    @task
    def carry_out(self) -> None:
        runner, error = self.environment.runner, ""
        assert runner is not None
        folder = Path(self.environment.parsed_options.plan)
        (folder / f"ready-{runner.worker_index}").touch()
        while not (folder / "plan.json").exists():
            gevent.sleep(WAIT_S)
        try:
            plan = Plan(folder)
            self._what, self._name = plan.kind.upper(), plan.route
            Share(plan, runner.worker_index, self._count).run()
        except Exception as raised:  # Locust would go on with the next task
            error = str(raised) if isinstance(raised, OSError | ValueError) else repr(raised)
        if isinstance(runner, WorkerRunner):
            runner.send_message(ENDED, {"error": error})
        else:
            _end(self.environment, error)
        raise StopUser

    def _count(self, latency_s: float, error: str) -> None:
        """Adds a request to Locust's own statistics."""
        self.environment.events.request.fire(
            request_type=self._what,
            name=self._name,
            response_time=latency_s * 1000,
            response_length=0,
            exception=error or None,
            context={},
        )


@events.init_command_line_parser.add_listener
def add_plan_option(parser: LocustArgumentParser, **_: Any) -> None:
    parser.add_argument("--plan", required=True, help="the folder with the plan")


@events.init.add_listener
def prepare(environment: Environment, runner: Runner, **_: Any) -> None:
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if isinstance(runner, MasterRunner):
        runner.register_message(ENDED, _hear_of_end)
    if not isinstance(runner, WorkerRunner):
        gevent.spawn(_end_without_parent, environment, os.getppid())


_ended: list[str] = []


def _hear_of_end(environment: Environment, msg: Message) -> None:
    """In the master: everything is over with the last worker, or with one that failed."""
    _ended.append(msg.node_id)
    error = msg.data["error"]
    options: Any = environment.parsed_options
    if error or len(_ended) == options.expect_workers:
        _end(environment, error)


def _end(environment: Environment, error: str) -> None:
    if error:
        logging.error(error)
        environment.process_exit_code = 1
    assert environment.runner is not None
    gevent.spawn(environment.runner.quit)


def _end_without_parent(environment: Environment, parent: int) -> None:
    """Whoever started the load test is gone, and nobody would read what comes of it."""
    while os.getppid() == parent:
        gevent.sleep(LOOK_S)
    _end(environment, "")
