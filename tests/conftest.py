"""Ends a test process that hangs, wherever it does; has hypothesis try the same in every run, what
takes longest begin first, and the workers import the tests in different orders.

pytest-timeout's exception is lost in a loop that swallows it, and what is torn down after a test is
not limited at all.
"""

from __future__ import annotations

import faulthandler
import gc
import os
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer

from tests.schedule import Schedule, longest_first, turned
from tests.support.control_plane import postgresql

# What fails does so for everybody, at any speed: `--hypothesis-profile=default` tries other cases.
settings.register_profile(
    "suite", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("suite")

HANGS_S = 600.0
"""Longer than any test takes, with the environment that it may have to build first."""
ENDS_S = 60.0
"""Longer than a process takes to end that has run all its tests."""
STDERR = pytest.StashKey[int]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--database",
        choices=["sqlite", "postgresql"],
        default="sqlite",
        help="which kind of database tests/platform and the platforms of tests/scenarios have",
    )
    parser.addoption(
        "--engine",
        choices=["local", "kubernetes"],
        default="local",
        help="where the platform of tests/scenarios runs: here, or on the test cluster",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.stash[STDERR] = os.dup(2)  # what is captured later is lost with the process


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Also setup and teardown. A worker that ends so fails its test; another takes its place."""
    faulthandler.dump_traceback_later(HANGS_S, exit=True, file=item.config.stash[STDERR])
    return (yield)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workerinput"):
        # It waits for the other workers, however long they take, and is ended with them.
        faulthandler.cancel_dump_traceback_later()
        return
    faulthandler.dump_traceback_later(ENDS_S, exit=True, file=session.config.stash[STDERR])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Schedule:
    return Schedule(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is imported stays: there is nothing to find in it, neither now nor during the tests."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    about: dict[str, object] = getattr(collector.config, "workerinput", {})
    if about and collector.path == Path(__file__).parent:
        worker = int(str(about["workerid"]).removeprefix("gw"))
        report.result = turned(report.result, worker, int(str(about["workercount"])))
    return report


@pytest.hookimpl(trylast=True)  # after pytest has sorted them by what they share
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--engine") == "local":  # a cluster has one of them at a time
        longest_first(items)


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[str]:
    """The URL of the first database of a server of our own."""
    if reason := postgresql.missing():
        pytest.skip(reason)
    with postgresql.server() as url:
        yield url
