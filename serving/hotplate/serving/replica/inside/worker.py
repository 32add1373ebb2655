"""The process of a replica, a program of its own; its job is on standard input.

BentoML's own worker runs in it, so that what must be in place before anything binds a name
(weights, start-up watch) is in place. It runs in the bento's environment: Python >= 3.9, the
standard library, bentoml, and safetensors where the bento has it.

The job is a JSON object: `bento` (its folder), `service` (name), `entry` (whether the public calls
it), `depends` (URL per service, with the revision's secret), `overrides` (of the service's
configuration), `workers` (processes), `journal` (file for phases), `modules` (file for the names of
what it had imported when ready), `stop_grace_s`, `absent` (model files that are not seen before
they have arrived), `notes` (lines for the log).
The listening socket is the descriptor in `HOTPLATE_LISTEN_FD`.
"""

from __future__ import annotations

import contextlib
import gc
import json
import logging
import os
import signal
import sys
import traceback
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hotplate.cache.reader import open_file
from hotplate.serving.replica.inside import methods
from hotplate.serving.replica.inside.command.listen_port import place_command
from hotplate.serving.replica.inside.full_disk import outlive_it
from hotplate.serving.replica.inside.journal import Journal
from hotplate.serving.replica.inside.missing_module import what_is_missing
from hotplate.serving.replica.inside.modules import note_modules
from hotplate.serving.replica.inside.patches import upload_folder as uploads
from hotplate.serving.replica.inside.patches.cloud import hide_url
from hotplate.serving.replica.inside.patches.handlers import HandlerWatch, Running
from hotplate.serving.replica.inside.patches.hooks import (
    Application,
    CommandWatch,
    StartWatch,
    TaskName,
    TaskWatch,
    keep_sessions,
    let_failures_out,
    pass_on,
    set_client_address,
    wrap_applications,
)
from hotplate.serving.replica.inside.patches.pickles import read_pickles_of
from hotplate.serving.replica.inside.patches.readiness import answer_for_itself
from hotplate.serving.replica.inside.patches.siblings import Siblings
from hotplate.serving.replica.inside.processes import supervise
from hotplate.serving.replica.inside.reserved import DEPLOYMENT_URL, is_reserved, not_used

Job = dict[str, Any]

KEEP_ALIVE_S = 3600
"""Only the gateway connects; it closes idle connections, so that none is closed under a request."""
GRACE_SHARE = 0.8
"""Part of the stop grace for requests in flight; the rest is for the service's shutdown hooks."""


def main() -> int:
    """Read the job and do it; the process's exit status."""
    job = json.load(sys.stdin)
    if job["workers"] > 1 and "worker" not in job:
        return supervise(job)
    return become(job, job.get("worker", 1), job.get("gate"))


def become(job: Job, worker: int = 1, gate: int | None = None) -> int:
    """Serve the job's service from this process, until SIGTERM. Returns only if that failed.

    `worker` counts from 1; the first one prepares the deployment and notes the phases. The others
    wait at `gate`, a pipe that the first one closes.
    """
    gc.disable()  # what is imported stays: to look through it for garbage takes 0.1 s
    outlive_it()
    make_home()
    first = worker == 1
    journal = Journal(job["journal"] if first else os.devnull)
    journal.note("process", "begin")
    for note in job["notes"] if first else ():
        print(note, file=sys.stderr)
    os.chdir(job["bento"])
    if job["bento"] not in sys.path:
        sys.path.insert(0, job["bento"])
    stream_weights()
    from _bentoml_sdk import Service
    from bentoml._internal.context import server_context
    from bentoml._internal.log import configure_server_logging

    hide_url()
    uploads.keep_beside(Path(job["bento"]))
    configure_server_logging()
    server_context.worker_index = worker  # `bentoml.importing()` is strict in a worker
    failures: list[BaseException] = []
    running = Running(worker, job["workers"], job.get("running"))
    let_failures_out()
    siblings = Siblings(job["depends"])
    answer_for_itself(siblings)
    read_pickles_of(siblings)
    if siblings.any:
        siblings.hide_secrets()
        siblings.sign_requests()
        keep_sessions()

    def wrapped(service: Any, app: Application) -> Application:
        watched = CommandWatch(
            TaskName(TaskWatch(app, _submissions(service))), service.context, _command_ended
        )
        early = pass_on if service.has_custom_command() else signal.SIG_DFL
        started = StartWatch(
            watched,
            lambda: _note_ready(journal, job["modules"] if first else ""),
            failures.append,
            early,
        )
        return HandlerWatch(started, running)

    wrap_applications(Service, wrapped)
    methods.watch_concurrency(Service)
    gc.freeze()
    gc.enable()
    journal.note("process", "end")
    if not first and gate is not None:
        os.read(gate, 1)
    journal.note("init", "begin")
    wait_for_absent(job["absent"])
    service = _load(job)
    siblings.sign_requests()
    if first:
        said = methods.describe(service, job["overrides"])
        methods.note(Path(job["journal"]).with_name(methods.FILE_NAME), said)
        _warn(service, job, said["concurrency"])
    if service.has_custom_command():
        note = Path(job["journal"]).with_name("command-port")
        place_command(service, note, first, job["depends"].values(), _network_lost)
    if first:
        _prepare_deployment(service)
        if gate is not None:
            os.close(gate)
    try:
        _serve(job, worker)
    except SystemExit as error:  # uvicorn's way to say that the service did not start
        _say_last(failures[0] if failures else error)
    return 1  # uvicorn ends a replica that has started by the signal that stopped it


def make_home() -> None:
    """The home that it is told may be its own, and new."""
    with contextlib.suppress(OSError):  # somebody else's then, or a full disk
        os.makedirs(os.path.expanduser("~"), mode=0o700, exist_ok=True)


def stream_weights() -> None:
    """Before anything can import safetensors; opened otherwise, a file waits until it is whole."""
    if find_spec("safetensors"):
        from hotplate.serving.replica.inside.patches.streamed_safetensors import install
    else:
        from hotplate.serving.streaming.audit import install_hook as install
    install()


def wait_for_absent(paths: list[str]) -> None:
    """Libraries look whether a file is there before they open it. Raises OSError."""
    for path in paths:
        with open_file(os.environ["HOTPLATE_AGENT_SOCKET"], path) as file:
            file.wait_linked()


def _submissions(service: Any) -> list[str]:
    """The paths after whose answer BentoML still runs a task."""
    from bentoml._internal.utils.uri import join_paths

    return [
        join_paths(service.path_prefix, api.route, ending)
        for api in service.apis.values()
        if api.is_task
        for ending in ("submit", "retry")
    ]


def _command_ended(code: int) -> None:
    """Nothing answers now, so the replica ends too, and is started again."""
    print(f"The service's command ended by itself with exit code {code}.", file=sys.stderr)
    _leave(1)


def _network_lost() -> None:
    print("The network of the service's command has ended.", file=sys.stderr)
    _leave(1)


def _note_ready(journal: Journal, modules: str) -> None:
    journal.note("init", "end")
    if modules:
        note_modules(modules)
    from hotplate.serving.streaming.weights_clock import weights_span

    span = weights_span()
    if span is not None:
        journal.note("weights", "begin", span.start)
        journal.note("weights", "end", span.end)


def _say_last(error: BaseException) -> None:
    """What ended the start, where it is looked for: on the log's last line."""
    words = what_is_missing(error, os.getcwd()) or "".join(
        traceback.format_exception_only(type(error), error)
    )
    print("The service did not start:", *words.split(), file=sys.stderr)


def _load(job: Job) -> Any:
    """The service's object, with its configuration and the variables that it declares.

    Raises ValueError for a declared variable that has no value.
    """
    from _bentoml_impl.loader import load

    root = load(job["bento"], standalone_load=True)
    service = root.find_dependent_by_name(job["service"])
    service.inject_config()
    _override(service.config, job["overrides"])
    for variable in (*service.envs, *root.envs):
        if variable.stage == "build" or variable.name in os.environ or is_reserved(variable.name):
            continue
        if variable.value:
            os.environ[variable.name] = variable.value
        elif variable in service.envs:
            raise ValueError(
                f"The service {service.name} needs a value for {variable.name}; "
                "set it in the deployment's envs."
            )
    return service


def _override(config: dict[str, Any], overrides: dict[str, Any]) -> None:
    """BentoML reads threads, endpoints and the proxy's port from what the author wrote only."""
    for key, value in overrides.items():
        below = config.get(key)
        if isinstance(value, dict) and isinstance(below, dict):
            _override(below, value)
        else:
            config[key] = value


def _warn(service: Any, job: Job, concurrency: int | None) -> None:
    """Say what the author will wonder about."""
    reserved = {each.name for each in service.envs if is_reserved(each.name)}
    for note in sorted({*map(not_used, reserved)} - {*job["notes"]}):
        print(note, file=sys.stderr)  # of a service that no manifest tells the variables of
    batched = sorted(name for name, api in service.apis.items() if api.batchable)
    if batched and concurrency == 1:
        print(
            f"{service.name} gets one request at a time, so {', '.join(batched)} will never see "
            "a batch of several; set traffic.concurrency to as many as should wait for a batch.",
            file=sys.stderr,
        )


def _prepare_deployment(service: Any) -> None:
    """Once per replica: models, deployment hooks, the database of tasks."""
    from _bentoml_impl.server.serving import server_on_deployment

    server_on_deployment(service)
    if service.has_custom_command():
        _wait_for_whole_models()


def _wait_for_whole_models() -> None:
    """The program behind a custom command opens files without us: opening here those that cannot
    be read yet waits. With a file view there are none."""
    for folder, _, names in os.walk(os.environ["HOTPLATE_MODELS"], followlinks=True):
        for name in names:
            with open(os.path.join(folder, name), "rb"):
                pass


def _serve(job: Job, worker: int) -> None:
    """BentoML's worker on the inherited socket."""
    from _bentoml_impl.worker.service import main as bentoml_worker

    fd = int(os.environ["HOTPLATE_LISTEN_FD"])
    urls = dict(job["depends"])
    if job["entry"] and DEPLOYMENT_URL in os.environ:
        urls[job["service"]] = os.environ[DEPLOYMENT_URL]
    os.environ["BENTOML_RUNNER_MAP"] = json.dumps(urls)
    set_client_address()
    grace_s = max(1, int(job["stop_grace_s"] * GRACE_SHARE))
    bentoml_worker.main(
        args=[
            job["bento"],
            *("--service-name", job["service"]),
            *("--fd", str(fd)),
            *("--worker-id", str(worker)),
            *("--args", "{}"),
            *("--timeout-keep-alive", str(KEEP_ALIVE_S)),
            *("--timeout-graceful-shutdown", str(grace_s)),
        ],
        standalone_mode=False,
    )


def run(work: Callable[[], int]) -> None:
    """`work`, then out: threads of the user's code must not hold a process that has failed."""
    status = 1
    try:
        status = work()
    except BaseException as error:
        traceback.print_exc()
        _say_last(error)
    if status:
        _wait_for_models()
    _leave(status)


def _wait_for_models() -> None:
    """Native code cannot open a stand-in, and after a few failed starts a revision has failed: the
    next one finds all files whole."""
    from hotplate.serving.streaming.audit import wait_for_models

    with contextlib.suppress(OSError):
        wait_for_models()


def _leave(status: int) -> None:
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    run(main)
