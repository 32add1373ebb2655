"""What is kept of demand, and the requests that are built again from it."""

from __future__ import annotations

import json
import random
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from hotplate.autoscaler.errors import TraceInvalid
from hotplate.autoscaler.policy import Replicas
from hotplate.autoscaler.simulator.arrivals import RequestTrace
from hotplate.autoscaler.simulator.logged_demand import read_log
from hotplate.deploy.workload import WorkloadKey
from hotplate.platform.cli import main
from hotplate.platform.controller.scaling.demand_log import UNWRITTEN_MAX, UNWRITTEN_S, DemandLog
from hotplate.platform.store.records import DemandRecord
from hotplate.serving.gateway.protocol.routes import RouteDemand

KEY = WorkloadKey("acme", "chat", 1, "Chat")
START = 1_700_000_000.0


def noted(*told: tuple[float, RouteDemand | None]) -> list[DemandRecord]:
    log = DemandLog()
    for at, demand in told:
        log.note(KEY, demand, Replicas(1, (0.0,)), at, START + at)
    return log.unwritten


def arrived(*told: tuple[float, RouteDemand | None]) -> list[int]:
    return [record.arrived for record in noted(*told)]


def test_arrivals_are_what_ended_and_what_is_there_more() -> None:
    first = RouteDemand(in_flight=1, queued=2)
    assert arrived((0, first), (5, RouteDemand(1, 1, completed=4))) == [3, 3]


def test_what_says_nothing_new_leaves_no_record() -> None:
    one = RouteDemand(in_flight=1)
    assert len(noted((0, one), (5, one), (6, None), (7, one))) == 1


def test_one_record_a_second_has_the_arrivals_of_those_left_out() -> None:
    reports = [(0.2 * turn, RouteDemand(1, 0, completed=turn)) for turn in range(20)]
    records = noted(*reports)
    assert len(records) <= 5
    assert sum(record.arrived for record in records) == 20


def test_one_record_a_second_of_each_of_two_services() -> None:
    log, other = DemandLog(), replace(KEY, service="Embed")
    for turn in range(20):
        for key in (KEY, other):
            demand = RouteDemand(1, 0, completed=turn)
            log.note(key, demand, Replicas(1, (0.0,)), 0.2 * turn, START + 0.2 * turn)
    for service in ("Chat", "Embed"):
        records = [record for record in log.unwritten if record.service == service]
        assert len(records) <= 5
        assert sum(record.arrived for record in records) == 20


def test_a_gateway_that_counts_anew_tells_no_arrivals_below_zero() -> None:
    before = RouteDemand(in_flight=3, completed=100)
    assert arrived((0, before), (5, RouteDemand(in_flight=1, completed=0))) == [3, 1]
    assert arrived((0, before), (5, RouteDemand(in_flight=1, completed=100))) == [3, 0], "left"


def test_records_wait_a_minute_at_most_to_be_written_together() -> None:
    log = DemandLog()
    assert log.due(5.0) is None
    log.note(KEY, RouteDemand(in_flight=1), Replicas(), 5.0, START)
    assert log.due(9.0) == 5.0 + UNWRITTEN_S
    for turn in range(UNWRITTEN_MAX):
        log.note(KEY, RouteDemand(1, completed=turn + 1), Replicas(), 7.0 + 2.0 * turn, START)
    assert log.due(9.0) == 9.0
    assert len(log.taken()) >= UNWRITTEN_MAX and log.taken() == []


@pytest.mark.parametrize("set_by_s", [-3600.0, 3600.0])
def test_records_do_not_wait_for_a_clock_that_is_set(set_by_s: float) -> None:
    log = DemandLog()
    log.note(KEY, RouteDemand(in_flight=1), Replicas(), 5.0, START)
    assert log.taken()
    log.note(KEY, RouteDemand(in_flight=2), Replicas(), 5.5, START + set_by_s)
    log.note(KEY, RouteDemand(in_flight=3), Replicas(), 7.0, START + set_by_s + 1.5)
    assert log.due(7.0) == 5.5 + UNWRITTEN_S
    assert [one.arrived for one in log.unwritten] == [1, 1]


def written(path: Path, *lines: object) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def lines_of(records: list[DemandRecord]) -> list[dict[str, object]]:
    of = {"kind": "demand", "organization": "acme", "deployment": "chat"}
    return [{**of, **asdict(one), "at": one.at.isoformat()} for one in records]


def test_requests_built_again_are_those_that_came(tmp_path: Path) -> None:
    """A queue before one slot, told as a gateway tells it, 0.2 s late."""
    rng, now, free_at = random.Random(4), 0.0, 0.0
    came: list[float] = []
    ends: list[float] = []
    for _ in range(200):
        now += rng.expovariate(1 / 4)
        free_at = max(free_at, now) + 3.0
        came.append(now)
        ends.append(free_at)
    told = []
    for at in sorted({at + 0.2 for at in came + ends}):
        there = sum(one <= at for one in came) - sum(one <= at for one in ends)
        done = sum(one <= at for one in ends)
        running = min(there, 1)
        told.append((at, RouteDemand(running, there - running, done, service_s=3.0)))
    log = written(tmp_path / "log", *lines_of(noted(*told)), {"kind": "decision"})
    (name, arrivals), *others = read_log([log]).items()
    assert (name, arrivals.organization, others) == ("chat", "acme", [])
    assert len(arrivals.arrival_s) == len(came)
    began = came[0]
    late = [got - (at - began) for got, at in zip(arrivals.arrival_s, came, strict=True)]
    assert max(map(abs, late)) <= 1.2
    assert set(arrivals.service_s) == {3.0}
    assert arrivals.arrival_s == sorted(arrivals.arrival_s)


def test_a_length_not_known_yet_is_the_one_known_next(tmp_path: Path) -> None:
    told = [(0.0, RouteDemand(in_flight=1)), (9.0, RouteDemand(completed=1, service_s=7.0))]
    trace = read_log([written(tmp_path / "log", *lines_of(noted(*told)))])
    assert trace == {"chat": RequestTrace("acme", [0.0], [7.0])}


def test_a_length_is_the_mean_that_the_request_is_in(tmp_path: Path) -> None:
    """Else a burst of long requests after a short one is played as short ones."""
    told = [
        (0.0, RouteDemand(in_flight=1)),
        (1.5, RouteDemand(in_flight=1, queued=8, completed=1, service_s=0.2)),
        (6.0, RouteDemand(in_flight=1, queued=4, completed=5, service_s=2.4)),
        (9.0, RouteDemand(in_flight=1, completed=9, service_s=2.9)),
        (12.0, RouteDemand(in_flight=1, completed=10, service_s=2.7)),
    ]
    log = written(tmp_path / "log", *lines_of(noted(*told)))
    assert read_log([log])["chat"].service_s == [0.2] + 10 * [2.7]


def test_what_is_no_text_is_not_shown(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"\x1f\x8b" + 9 * b"packed")
    with pytest.raises(TraceInvalid, match=r"log, after line 0: not UTF-8 \(invalid start byte\);"):
        read_log([tmp_path / "log"])


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("not JSON", "line 1"),
        ('{"kind": "demand"}', "line 1: KeyError('deployment')"),
        ('{"kind": "demand", "deployment": "a", "arrived": 1e400, "service_s": 1}', "Overflow"),
        ('{"kind": "demand", "deployment": "a", "arrived": 1, "service_s": 1e9}', "at most 1e7"),
        ('{"kind": "decision"}', "the log has no requests"),
        ("", "the log has no requests"),
    ],
)
def test_what_is_no_log_is_refused_in_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str, said: str
) -> None:
    (tmp_path / "log").write_text(line)
    with pytest.raises(TraceInvalid, match="log"):
        read_log([tmp_path / "log"])
    assert main(["simulate", "--log", str(tmp_path / "log"), "--json"]) != 0
    printed = capsys.readouterr()
    assert printed.out == "" and said in printed.err and printed.err.count("\n") == 1


def test_a_log_is_played_through_any_policy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = [(at, RouteDemand(1, completed=turn, service_s=5.0))
            for turn, at in enumerate((0.0, 60.0, 500.0))]  # fmt: skip
    log = written(tmp_path / "log", *lines_of(noted(*told)))
    flags = ["--policy", "ours", "modal-idle", "--cold-start", "10", "--json"]
    assert main(["simulate", "--log", str(log), *flags]) == 0
    policies = json.loads(capsys.readouterr().out)["policies"]
    assert {name: one["requests"] for name, one in policies.items()} == {
        "ours": 3,
        "modal-idle": 3,
    }
