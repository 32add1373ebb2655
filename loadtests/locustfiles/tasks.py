"""Users of a task: each is submitted, waited for and fetched (`@bentoml.task`).

    locust -f tasks.py --host URL --route /transcribe --payload '{"text": "Hello"}'

The row TASK of Locust's statistics is the time from the submission to the result.
"""

from __future__ import annotations

from time import perf_counter as clock
from urllib.parse import quote

import gevent
from locust import task

from deployment_user import DeploymentUser, succeeded
from task_states import COMPLETED, RUNNING, pause_s


class TaskUser(DeploymentUser):
    @task
    def wait_for_one(self) -> None:
        began = clock()
        ended = self._ended(began)
        error = None if ended == COMPLETED else RuntimeError(f"the task ended as {ended}")
        self.report("TASK", clock() - began, error)

    def _ended(self, began: float) -> str:
        """Submits one, and waits for its result. Returns how it ended."""
        task_id = self._told(f"{self.route}/submit", "task_id", self.payload())
        if not task_id:
            return "not submitted"
        query = "?task_id=" + quote(task_id)
        state = "pending"
        while state in RUNNING:
            gevent.sleep(pause_s(clock() - began))
            state = self._told(f"{self.route}/status{query}", "status") or "unknown"
        with self.ask(f"{self.route}/get{query}"):
            return state

    def _told(self, path: str, field: str, body: bytes | None = None) -> str:
        """A field of the answer; empty if there is none."""
        with self.ask(path, body) as answer:
            if succeeded(answer):
                return str(answer.json()[field])
        return ""
