"""One line per answer, and the histograms that count the same."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from prometheus_client import generate_latest

from hotplate.serving.gateway.admin.metrics import registry_of
from hotplate.serving.gateway.all_routes import Gateway
from hotplate.serving.gateway.telemetry.access_log import AccessLog, Entry
from tests.support.gateway.kitchen import LIMITS, Kitchen
from tests.support.patience import until


@pytest.fixture
async def kitchen(tmp_path: Path) -> AsyncIterator[Kitchen]:
    kitchen = Kitchen()
    kitchen.gateway = Gateway(LIMITS, access_log=AccessLog(tmp_path / "access.log"))
    await kitchen.open()
    yield kitchen
    await kitchen.close()


async def test_every_answer_has_a_line(kitchen: Kitchen, tmp_path: Path) -> None:
    await kitchen.wake()
    await kitchen.ask("/echo?secret=1", method="POST", body=b"hello", x_request_id="mine 7")
    await kitchen.ask("/livez")
    caller = await kitchen.caller()
    caller.send_raw(b"rubbish\r\n\r\n")
    await caller.answer()
    left = await kitchen.send("/slow")
    await until(lambda: kitchen.backend.running == 1)
    left.leave(reset=True)  # it is seen even where nothing becomes free by it
    await until(lambda: kitchen.server.counters.left == 1)
    kitchen.backend.gate.set()
    cut = await kitchen.send("/half")
    await cut.ended()
    await kitchen.close()

    lines = [line.split(" ") for line in (tmp_path / "access.log").read_text().splitlines()]
    assert all(len(line) == 11 and line[0].endswith("+00:00") for line in lines)
    assert [line[1] for line in lines] == ["acme/echo"] * 5
    assert [line[2] for line in lines] == ["127.0.0.1"] * 5
    assert [line[4:8] for line in lines] == [
        ["POST", "/echo", "200", "5"],
        ["GET", "/livez", "200", "16"],
        ["-", "-", "400", lines[2][7]],
        ["GET", "/slow", "-", "0"],
        ["GET", "/half", "200", "4"],
    ]
    assert lines[0][3] == "mine_7"
    assert [line[10] for line in lines] == ["r1", "-", "-", "r1", "r1"]
    assert float(lines[0][8]) <= float(lines[0][9]) < 5


async def test_a_file_that_was_moved_away_is_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "access.log"
    log = AccessLog(path)
    log.note(Entry("a", b"1.2.3.4"))
    log.flush()
    path.rename(tmp_path / "old.log")
    log.note(Entry("b", b"1.2.3.4"))
    log.close()
    assert path.read_text().split(" ")[1] == "b"
    assert len((tmp_path / "old.log").read_text().splitlines()) == 1


async def test_a_log_that_cannot_be_written_costs_its_lines_and_says_so_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = AccessLog(tmp_path / "none" / "access.log")
    for _ in range(3):
        log.note(Entry("a", b"1.2.3.4"))
        log.flush()
    assert [record.message for record in caplog.records] == [
        f"access log {tmp_path}/none/access.log: [Errno 2] No such file or directory: "
        f"'{tmp_path}/none/access.log'; lines are lost until it works"
    ]
    (tmp_path / "none").mkdir()
    log.note(Entry("b", b"1.2.3.4"))
    log.close()
    assert len((tmp_path / "none" / "access.log").read_text().splitlines()) == 1


async def test_times_are_counted_from_arrival_to_slot_to_first_byte_to_end(
    kitchen: Kitchen,
) -> None:
    await kitchen.wake()
    await kitchen.ask("/echo", method="POST", body=b"hello")
    await kitchen.ask("/livez")
    said = generate_latest(registry_of(lambda: kitchen.gateway.servers)).decode()
    for name in ("wait", "first_byte", "answer"):
        assert f'hotplate_gateway_{name}_seconds_count{{route="acme/echo"}} 1.0' in said
