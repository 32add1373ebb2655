"""A cluster in memory with Jobs: each has a pod, which prints and ends as a test has it."""

from __future__ import annotations

import asyncio
import copy
import itertools
from dataclasses import dataclass, field
from typing import Any

from hotplate.deploy.cluster.builds.jobs import CONTROLLER
from hotplate.deploy.cluster.kinds import JOB, POD, Ref
from hotplate.deploy.cluster.objects import Manifest
from tests.support.deploy.cluster import AT, ClusterInMemory

SCHEDULED = {"type": "PodScheduled", "status": "True"}


@dataclass
class PrintedLog:
    """What a container has printed, each line at a time of its own."""

    lines: list[str] = field(default_factory=list)
    ended: bool = False
    has_changed: asyncio.Event = field(default_factory=asyncio.Event)

    def change(self, *lines: str, ended: bool = False) -> None:
        for line in lines:
            self.lines.append(f"2026-01-01T00:00:00.{len(self.lines):09}Z {line}")
        self.ended = self.ended or ended
        self.has_changed.set()
        self.has_changed = asyncio.Event()


class ClusterWithJobs(ClusterInMemory):
    """Its controller of Jobs does not try again, as theirs say."""

    def __init__(self) -> None:
        super().__init__()
        self.logs: dict[str, PrintedLog] = {}
        self._numbers = itertools.count(1)

    def put(self, manifest: Manifest) -> Ref:
        ref = super().put(manifest)
        job = self.objects[ref]
        if ref.kind == JOB.name and "status" not in job:
            job["status"] = {}
            self._make_pod(job)
        return ref

    def run(self, *lines: str) -> None:
        """The pod of the one Job has begun, and prints."""
        ref = self.pod
        self._status(ref, {"running": {"startedAt": AT}})
        self.logs.setdefault(ref.name, PrintedLog()).change(*lines)

    def finish(self, code: int = 0, message: str = "", reason: str = "") -> None:
        """It ends; the Job is told a moment later."""
        ended: dict[str, Any] = {"exitCode": code, "message": message, "reason": reason}
        ref = self.pod
        self._status(ref, {"terminated": {**ended, "startedAt": AT, "finishedAt": AT}})
        self.logs.setdefault(ref.name, PrintedLog()).change(ended=True)
        self.end_job("Failed" if code else "Complete", "BackoffLimitExceeded" if code else "")

    def kill(self) -> None:
        """Somebody deletes the pod."""
        ref = self.pod
        self.logs.setdefault(ref.name, PrintedLog()).change(ended=True)
        self.delete(ref)
        self.end_job("Failed", "BackoffLimitExceeded")

    def lose(self) -> Ref:
        """The pod is to end, on a node that does not say whether it has; the pod."""
        ref = self.pod
        self.objects[ref]["metadata"]["finalizers"] = ["batch.kubernetes.io/job-tracking"]
        self.delete(ref)
        self.end_job("FailureTarget", "BackoffLimitExceeded")
        return ref

    def end_job(self, kind: str, reason: str = "") -> None:
        condition = {"type": kind, "status": "True", "reason": reason}
        self.objects[self.job]["status"] = {"conditions": [condition]}
        self._touch(self.job, "MODIFIED")

    def wait(self, status: dict[str, Any]) -> None:
        """The pod waits, as its status says."""
        self.objects[self.pod]["status"] = status
        self._touch(self.pod, "MODIFIED")

    @property
    def jobs(self) -> list[Ref]:
        return [ref for ref in self.objects if ref.kind == JOB.name]

    @property
    def job(self) -> Ref:
        (found,) = self.jobs
        return found

    @property
    def pod(self) -> Ref:
        (found,) = [ref for ref in self.objects if ref.kind == POD.name]
        return found

    def _make_pod(self, job: Manifest) -> None:
        template = copy.deepcopy(job["spec"]["template"])
        uid, name = job["metadata"]["uid"], job["metadata"]["name"]
        meta = {
            "name": f"{name}-{next(self._numbers)}",
            "namespace": job["metadata"]["namespace"],
            "labels": {**template["metadata"]["labels"], CONTROLLER: uid},
            "ownerReferences": [{"uid": uid}],
        }
        pod = {"apiVersion": "v1", "kind": POD.name, "spec": template["spec"]}
        self.put({**pod, "metadata": meta, "status": {"conditions": [SCHEDULED]}})

    def _status(self, ref: Ref, state: dict[str, Any]) -> None:
        container = {"name": "build", "state": state}
        status = {"conditions": [SCHEDULED], "containerStatuses": [container]}
        self.objects[ref]["status"] = status
        self._touch(ref, "MODIFIED")
