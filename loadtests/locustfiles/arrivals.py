"""What `hotplate loadtest` runs: each request is sent when its plan says so, and is written down.

    locust -f arrivals.py --headless --plan FOLDER --users N --processes N

`--users` is the number of processes. `plan.py` says what the folder has, when all are ready; the
samples go there, too.
Latency counts from the moment at which a request was due, so that neither a server that answers
slowly nor a process that cannot keep up hides what callers wait (coordinated omission).
"""

from __future__ import annotations

import os
import resource
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import gevent
import psutil
from locust import User, events, task
from locust.argument_parser import LocustArgumentParser
from locust.env import Environment
from locust.exception import StopUser
from locust.rpc import Message
from locust.runners import MasterRunner, Runner, WorkerRunner

from plan import Plan
from share import Share

ENDED = "share_ended"
"""What each process says when its share is over: the error that has ended it, or none."""
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
        runner.send_message(ENDED, {"error": error})
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
    if not isinstance(runner, WorkerRunner):
        ending = Ending(environment, runner)
        runner.register_message(ENDED, ending.hear)
        gevent.spawn(ending.watch, os.getppid())


class Ending:
    """In the process that was started: when everything is over."""

    def __init__(self, environment: Environment, runner: Runner) -> None:
        self._environment = environment
        self._runner = runner
        options: Any = environment.parsed_options
        self._shares = options.expect_workers if isinstance(runner, MasterRunner) else 1
        self._workers = options.processes or 0
        self._over = False

    def hear(self, msg: Message, **_: Any) -> None:
        """All ends with the last share, or with one that failed."""
        self._shares -= 1
        if msg.data["error"] or not self._shares:
            self._end(msg.data["error"])

    def watch(self, parent: int) -> None:
        """All ends with whoever started it, who would read what comes of it, and with any worker
        that dies."""
        own = psutil.Process()
        while len(own.children()) >= self._workers:
            if os.getppid() != parent:
                return self._end("")
            gevent.sleep(LOOK_S)
        return self._end("a process of the load maker was killed")

    def _end(self, error: str) -> None:
        if self._over:
            return
        self._over = True
        if error:
            self._environment.process_exit_code = 1
            with suppress(OSError):  # where its disk is full, there are no last words
                print(error, file=sys.stderr)
        gevent.spawn(self._runner.quit)
