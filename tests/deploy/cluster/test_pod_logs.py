"""Where what a pod had printed ends, and what it prints begins."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import cast

import pytest

from hotplate.deploy.cluster.api import ClusterApi
from hotplate.deploy.cluster.kinds import Ref
from hotplate.deploy.cluster.pod_logs import PodLogs
from hotplate.deploy.cluster.settings import ClusterSettings

POD = {"kind": "Pod", "metadata": {"name": "p", "namespace": "n", "uid": "u"}}


class PrintedPods:
    """What a cluster has of each."""

    async def follow(self, pod: Ref, lines: int | None) -> AsyncGenerator[str, None]:
        for line in ("one", "two"):
            yield line


@pytest.mark.parametrize(
    ("lines", "old_s", "pieces"),
    [
        (9, 60.0, ["one\n", "two\n"]),
        (9, 0.0, ["", "one\n", "two\n"]),
        (None, 0.0, ["one\n", "two\n"]),
    ],
)
async def test_what_comes_at_once_was_there_and_what_comes_later_is_new(
    lines: int | None, old_s: float, pieces: list[str]
) -> None:
    logs = PodLogs(cast(ClusterApi, PrintedPods()), ClusterSettings(), old_s)
    assert [piece async for piece in logs.followed("p", POD, lines)] == pieces
