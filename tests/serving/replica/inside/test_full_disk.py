"""A disk that fills up under a replica which serves."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.replica.bentos import write_bento
from tests.support.replica.replicas import started, workload
from tests.support.small_disk import MIB, fill, small_disk

CHATTY = """
    import sys
    import bentoml

    counter = bentoml.metrics.Counter(name="made", documentation="…", labelnames=["label"])

    @bentoml.service(workers=1)
    class Echo:
        @bentoml.api
        def chat(self, text: str, labels: int) -> list[str]:
            print(text * 2000)
            print(text * 2000, file=sys.stderr)
            for number in range(labels):
                counter.labels(label=f"{text}-{number}").inc()
            return [text]
"""

FILLING = """
import os
with open(os.environ["FILLER"], "wb", buffering=0) as filler:
    try:
        while filler.write(bytes(1 << 16)):
            pass
    except OSError:
        pass
"""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "disk").mkdir()
    with small_disk(tmp_path / "disk", 8 * MIB) as folder:
        yield folder


def test_a_full_disk_costs_a_replica_log_lines_and_no_request(disk: Path) -> None:
    bento = write_bento(disk / "bento", CHATTY)
    with started(disk, bento, workload(), warm=True) as replica:
        replica.get("/readyz")
        filler = fill(disk)
        # A file of metrics has room for some 500 series: it grows, too, while the disk is full.
        for text in ("one", "two"):
            assert replica.call("chat", text=text, labels=1000) == [text]
        filler.unlink()
        assert replica.call("chat", text="three", labels=1) == ["three"]
        assert replica.process.poll() is None
        replica.get("/metrics")
        log = replica.log.read_text()
    assert "bytes are missing here: the disk was full]" in log
    assert "three" in log
    assert "twotwotwo" not in log


def test_a_replica_starts_on_a_disk_that_is_full(disk: Path) -> None:
    bento = write_bento(disk / "bento", FILLING + textwrap.dedent(CHATTY))
    served = workload(env={"FILLER": str(disk / "filler")})
    with started(disk, bento, served) as replica:
        replica.get("/readyz")
        assert replica.call("chat", text="one", labels=1000) == ["one"]
        replica.get("/metrics")
        assert os.statvfs(disk).f_bavail == 0
