"""`hotplate loadtest`: what a deployment does under load, measured as its callers see it."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markdown import Markdown

from hotplate.platform.commands import load_flags, secret_flags
from hotplate.platform.commands.api_client import ApiClient
from hotplate.platform.commands.load_flags import AskedLoad
from hotplate.platform.commands.pages.printing import page_console
from hotplate.platform.errors import BadSetting, CannotStart, NotFound, Unreachable
from hotplate.platform.loadtest import comparison, report
from hotplate.platform.loadtest.asking import forms, organizations, payloads, target
from hotplate.platform.loadtest.asking.target import Ask, LoadTarget
from hotplate.platform.loadtest.live.load_test import CarriedOut, LoadTest
from hotplate.platform.loadtest.live.progress import ProgressDisplay
from hotplate.platform.loadtest.load_maker import INSTALL
from hotplate.platform.loadtest.markdown import markdown
from hotplate.platform.loadtest.plan import SAMPLES, Kind, LoadPlan
from hotplate.platform.loadtest.predicting import prediction, starts
from hotplate.platform.loadtest.samples import GAPS, RequestSample, read
from hotplate.platform.loadtest.thresholds import parse, sentence
from hotplate.platform.processes.data_dir import DEFAULT, DataDir
from hotplate.platform.schema.methods import ServiceMethod, mounted_paths, service_methods

PROBE_BYTES = 8 << 20
"""What a report may need: a folder without room for so much is refused before the load begins."""
HELD = 3
"""The exit status if an expression of --fail-if holds."""
SIGNALLED = 128
"""Added to a signal's number: the exit status of a load test that it ended, as in shells."""

add_flags = load_flags.add_flags


def run(arguments: argparse.Namespace) -> int:
    """Load and report; the exit status. What can be refused is refused before the load begins.

    Raises PlatformError, TraceInvalid and OSError.
    """
    if arguments.compare:
        return _compare(arguments)
    if arguments.target is None:
        raise BadSetting(
            "TARGET is missing: give a deployment's name or URL, and before flags that take "
            "several values, such as --fail-if"
        )
    asked = load_flags.asked_load(arguments)
    thresholds = [parse(text) for text in arguments.fail_if or ()]
    if find_spec("locust") is None:
        raise CannotStart(f"a load test needs Locust, which is not installed: {INSTALL}")
    found, ask = _target(arguments)
    if asked.organizations and not found.organization_header:
        raise BadSetting(_no_header(found))
    token = _token(arguments, found)
    plan, bodies = _plan(asked, found, token)
    due_s, duration_s = asked.arrivals(found.name)
    plan = replace(plan, duration_s=duration_s)
    known = _learnt(ask, found) if arguments.predict else None
    folder = None if arguments.report is None else _report_folder(arguments.report)
    watched = (ask, found.name) if ask is not None and found.name else None
    progress = Console(stderr=True, highlight=False)
    with tempfile.TemporaryDirectory(prefix="hotplate-loadtest-") as work:
        test = LoadTest(plan, due_s, bodies, Path(work), token, watched)
        with ProgressDisplay(progress, duration_s) as display:
            if known is not None:
                display.say(_foretold(prediction.predict(known, due_s, duration_s)))
            done = asyncio.run(test.carry_out(display))
        built = report.build(
            done.plan,
            arguments.target,
            asked.shape,
            () if asked.users else due_s,
            _samples(test),
            _gaps(test),
            done.observed,
            done.ended_at_s,
            thresholds,
        )
    if known is not None and built["requests"]:
        begun = prediction.begun_with(known, done.observed)
        foretold = prediction.predict(begun, due_s, duration_s, done.ended_at_s)
        built["prediction"] = prediction.beside(foretold, built)
    try:
        if folder is not None:
            report.write(folder, built)
    finally:  # what was measured is not to be had again
        _show(arguments, built, markdown(built))
    return _exit_status(built, done)


# What is asked ------------------------------------------------------------------------------


def _target(arguments: argparse.Namespace) -> tuple[LoadTarget, Ask | None]:
    """The target, and how to ask its platform if there is one.

    A URL needs no platform, unless the flags name one.
    """
    named: str = arguments.target
    if not target.is_url(named):
        ask = ApiClient.of(arguments)
        return target.of_name(named, ask), ask
    found = target.of_url(named)
    is_meant = arguments.endpoint is not None or arguments.data is not DEFAULT
    try:
        ask = ApiClient.of(arguments)
        return target.watched(found, ask), ask
    except (Unreachable, NotFound, OSError):
        if is_meant:
            raise
        return found, None


def _token(arguments: argparse.Namespace, found: LoadTarget) -> str:
    """What callers of the deployment send. That of an `up` on this machine goes only where that
    `up` says that the deployment is."""
    if arguments.endpoint_token_file is not None:
        return secret_flags.read(arguments.endpoint_token_file, "--endpoint-token-file")
    if found.protected and arguments.endpoint is None and not target.is_url(arguments.target):
        path = DataDir.named(arguments.data).endpoint_token_file
        if path.exists():
            return secret_flags.read(str(path), "--endpoint-token-file")
    return ""


def _plan(asked: AskedLoad, found: LoadTarget, token: str) -> tuple[LoadPlan, Sequence[bytes]]:
    """Without its times; and the bodies as they are sent."""
    schema = target.schema_of(found, token)
    methods = list(service_methods(schema))
    method = target.method_of(methods, asked.route, mounted_paths(schema))
    bodies = asked.bodies
    if not bodies:
        if method is None:
            raise target.unknown_route(methods, asked.route or "")
        bodies = payloads.made(method, asked.seed)
    bodies, content_type = forms.with_files(bodies, method)
    route = target.route_of(method, asked.route)
    plan = LoadPlan(
        url=found.base(route),
        route=route,
        kind=asked.kind or _kind(method),
        duration_s=0.0,
        started_at=0.0,
        users=asked.users,
        processes=asked.processes,
        organization_header=found.organization_header if asked.organizations else "",
        organizations=tuple(asked.organizations),
        turns=organizations.turns(asked.organizations),
        seed=asked.seed,
        content_type=content_type,
    )
    return plan, bodies


def _kind(method: ServiceMethod | None) -> Kind:
    if method is None:
        return "call"
    return "task" if method.is_task else "stream" if method.streams else "call"


def _no_header(found: LoadTarget) -> str:
    if not found.name:
        return (
            "--organizations needs the deployment's organization header, which its platform knows: "
            "name the deployment, and the platform by --data or --endpoint"
        )
    return (
        f"--organizations needs a header by which {found.name} tells them apart: update it with "
        "--label hotplate/organization-header=X-Organization"
    )


def _learnt(ask: Ask | None, found: LoadTarget) -> prediction.Learnt:
    """What the platform says of the deployment, to predict by."""
    if ask is None or not found.name:
        raise BadSetting(
            "--predict needs what the platform has learnt of the deployment: name the deployment, "
            "and the platform by --data or --endpoint"
        )
    page = target.page_of(found.name)
    cold_starts = ask(f"{page}/cold_starts?count={starts.LOOKED_AT}")
    return prediction.learnt(ask(page), ask(f"{page}/log"), cold_starts, ask("/standby"))


def _foretold(predicted: Mapping[str, Any]) -> str:
    name, unit = ("gpu_s", "GPU") if "gpu_s" in predicted else ("replica_s", "replica")
    used_s, wait_s = sum(predicted[name].values()), predicted["wait_s"]
    return (
        f"predicted: {used_s:.0f} {unit}-seconds, {predicted['starts']} starts; requests wait "
        f"{wait_s['mean']:.2f} s for a replica on average, and 5 of 100 longer than "
        f"{wait_s['p95']:.2f} s"
    )


# What has come of it --------------------------------------------------------------------------


def _samples(test: LoadTest) -> Iterator[RequestSample]:
    for number in range(test.plan.processes):
        path = test.folder / SAMPLES.format(number)
        if path.exists():
            yield from read(path)


def _gaps(test: LoadTest) -> array[float]:
    found = array("f")
    for number in range(test.plan.processes):
        path = test.folder / GAPS.format(number)
        if path.exists():
            content = path.read_bytes()
            found.frombytes(content[: len(content) - len(content) % found.itemsize])
    return found


def _report_folder(text: str) -> Path:
    """The folder of `--report`, made and found to have room for one."""
    folder = Path(text).expanduser()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise BadSetting(f"--report {folder} is not empty: name a new folder")
        with tempfile.TemporaryFile(dir=folder) as probe:
            os.posix_fallocate(probe.fileno(), 0, PROBE_BYTES)
    except OSError as error:
        raise BadSetting(
            f"--report {folder} cannot hold a report of up to {PROBE_BYTES >> 20} MiB: "
            f"{error.strerror}"
        ) from error
    return folder


def _show(arguments: argparse.Namespace, figures: Mapping[str, Any], said: str) -> None:
    """As JSON, or as Markdown, of which a terminal shows the tables drawn."""
    console = page_console()
    if arguments.json:
        print(json.dumps(figures))
    elif console.is_terminal:
        console.print(Markdown(said))
    else:
        print(said)


def _exit_status(built: dict[str, Any], done: CarriedOut) -> int:
    """Says why it is not 0."""
    if done.complaint:
        print(f"hotplate: a request failed with {done.complaint}", file=sys.stderr)
    if not built["kept_up"]:
        rate = built["rate_per_s"]
        print(
            f"hotplate: the load maker did not keep up: it sent {rate['achieved']:g} of "
            f"{rate['asked']:g} requests/s in time, and the report is marked",
            file=sys.stderr,
        )
    held = [sentence(one) for one in built["thresholds"] if not one["ok"]]
    for each in held:
        print(f"hotplate: {each}", file=sys.stderr)
    if held:
        return HELD
    return 0 if done.stopped_by is None else SIGNALLED + done.stopped_by


def _compare(arguments: argparse.Namespace) -> int:
    if arguments.target is not None:
        raise BadSetting(
            f"--compare reads two reports and loads nothing: leave {arguments.target} out"
        )
    compared = comparison.compare(*map(Path, arguments.compare))
    _show(arguments, compared.to_json(), comparison.markdown(compared))
    return 0
