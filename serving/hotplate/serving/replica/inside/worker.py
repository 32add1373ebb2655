"""The process of a replica, a program of its own; its job is on standard input.

BentoML's own worker runs in it, so that everything that must be in place before anything binds a
name (weights, start-up watch) is in place. It runs in the bento's environment: Python >= 3.9, the
standard library, bentoml, and safetensors if the bento has it.

The job is a JSON object: `bento` (its folder), `service` (name), `entry` (whether the public calls
it), `depends` (URL per service, with the revision's secret), `overrides` (of the service's
configuration), `workers` (processes), `journal` (file for phases), `modules` (file for the names of
its imports when it was ready), `stop_grace_s`, `absent` (model files that do not exist before they
have arrived), `notes` (lines for the log); and `secrets`, where there are files of such, as
`secret_files.py` takes them.
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
from collections.abc import Callable, Container
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hotplate.cache.reader import open_file
from hotplate.serving.replica.inside import methods, secret_files
from hotplate.serving.replica.inside.command.listen_port import place_command
from hotplate.serving.replica.inside.full_disk import survive_full_disk
from hotplate.serving.replica.inside.journal import Journal
from hotplate.serving.replica.inside.missing_module import what_is_missing
from hotplate.serving.replica.inside.modules import note_modules
from hotplate.serving.replica.inside.patches import upload_folder as uploads
from hotplate.serving.replica.inside.patches.cloud import hide_url
from hotplate.serving.replica.inside.patches.default_configuration import keep_defaults
from hotplate.serving.replica.inside.patches.handlers import HandlerWatch
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
from hotplate.serving.replica.inside.patches.named_deployments import look_up_while_serving
from hotplate.serving.replica.inside.patches.pickles import read_pickles_of
from hotplate.serving.replica.inside.patches.readiness import answer_for_itself
from hotplate.serving.replica.inside.patches.running import Running
from hotplate.serving.replica.inside.patches.siblings import Siblings
from hotplate.serving.replica.inside.patches.yaml_parser import parse_in_c
from hotplate.serving.replica.inside.processes import supervise
from hotplate.serving.replica.inside.report import dumped, report
from hotplate.serving.replica.inside.reserved import DEPLOYMENT_URL, REPLICA_UID
from hotplate.serving.replica.inside.service import (
    load_service,
    prepare_deployment,
    task_submissions,
    warn,
)
from hotplate.serving.replica.inside.unused_imports import unused_left_out

Job = dict[str, Any]

KEEP_ALIVE_S = 3600
"""Only the gateway connects; it closes idle connections, so that none is closed under a request."""
GRACE_SHARE = 0.8
"""The part of the stop grace for requests in flight; the rest is for the service's shutdown
hooks."""

_prepared = False


def main() -> int:
    """Reads the job and runs it; returns the process's exit status."""
    job = json.load(sys.stdin)
    if job["workers"] > 1 and "worker" not in job:
        return supervise(job)
    return become(job, job.get("worker", 1), job.get("gate"))


def become(job: Job, worker: int = 1, gate: int | None = None) -> int:
    """Serves the job's service from this process, until SIGTERM. Returns only if that failed.
    `worker` counts from 1; the first one prepares the deployment and records the phases. The others
    wait at `gate`, a pipe that the first one closes."""
    gc.disable()  # modules stay: to search them for garbage takes 0.1 s
    make_home()
    first = worker == 1
    journal = Journal(job["journal"] if first else os.devnull)
    journal.note("process", "begin")
    for note in job["notes"] if first else ():
        print(note, file=sys.stderr)
    os.chdir(job["bento"])
    if job["bento"] not in sys.path:
        sys.path.insert(0, job["bento"])
    if first and "secrets" in job:
        secret_files.place(os.environ["BENTOML_HOME"], job["secrets"])
    prepare()
    from _bentoml_sdk import Service
    from bentoml._internal.context import server_context
    from bentoml._internal.log import configure_server_logging

    uploads.store_beside(Path(job["bento"]))
    configure_server_logging()
    server_context.worker_index = worker  # `bentoml.importing()` is strict in a worker
    failures: list[BaseException] = []
    running = Running(worker, job["workers"], job.get("running"))
    siblings = Siblings(job["depends"])
    answer_for_itself(siblings)
    look_up_while_serving()
    read_pickles_of(siblings)
    if siblings.any:
        siblings.hide_secrets()
        siblings.sign_requests()
        keep_sessions()

    def wrapped(service: Any, app: Application) -> Application:
        watched = CommandWatch(
            TaskName(TaskWatch(app, task_submissions(service))), service.context, _command_ended
        )
        early = pass_on if service.has_custom_command() else signal.SIG_DFL
        started = StartWatch(
            watched,
            lambda: _note_ready(journal, job["modules"] if first else ""),
            failures.append,
            early,
        )
        uid = os.environ.get(REPLICA_UID, "")
        return HandlerWatch(started, running, lambda: dumped(report(job)), uid)

    wrap_applications(Service, wrapped)
    methods.watch_concurrency(Service)
    gc.freeze()
    gc.enable()
    journal.note("process", "end")
    if not first and gate is not None:
        os.read(gate, 1)
    journal.note("init", "begin")
    wait_for_absent(job["absent"])
    service = load_service(job)
    siblings.sign_requests()
    if first:
        description = methods.describe(service, job["overrides"])
        methods.note(Path(job["journal"]).with_name(methods.FILE_NAME), description)
        warn(service, job, description["concurrency"])
    if service.has_custom_command():
        note = Path(job["journal"]).with_name("command-port")
        place_command(service, note, first, job["depends"].values(), _network_lost)
    if first:
        prepare_deployment(service)
        if gate is not None:
            os.close(gate)
    try:
        _serve(job, worker)
    except SystemExit as error:  # uvicorn's way to say that the service did not start
        _say_last(failures[0] if failures else error)
    return 1  # uvicorn ends a replica that has started by the signal that stopped it


def prepare(used: Container[str] = ()) -> None:
    """Does what is the same for every replica of an environment. A second call does nothing.
    `used` are modules that replicas use although BentoML imports them for nothing."""
    global _prepared
    if _prepared:
        return
    _prepared = True
    survive_full_disk()
    stream_weights()
    with unused_left_out(used):
        import _bentoml_impl.server.app  # noqa: F401  (and with it all that follows)
    hide_url()
    keep_defaults()
    parse_in_c()
    let_failures_out()


def make_home() -> None:
    """Makes the home folder, which may be the replica's own and new."""
    with contextlib.suppress(OSError):  # it is another user's, or the disk is full
        os.makedirs(os.path.expanduser("~"), mode=0o700, exist_ok=True)


def stream_weights() -> None:
    """Installs weight streaming before anything can import safetensors. Any other file that is
    opened is waited for until it is whole."""
    if find_spec("safetensors"):
        from hotplate.serving.replica.inside.patches.streamed_safetensors import install
    else:
        from hotplate.serving.streaming.audit import install_hook as install
    install()


def wait_for_absent(paths: list[str]) -> None:
    """Waits for files that are absent, because libraries check whether a file exists before they
    open it. Raises OSError."""
    for path in paths:
        with open_file(os.environ["HOTPLATE_AGENT_SOCKET"], path) as file:
            file.wait_linked()


def _command_ended(code: int) -> None:
    """The command's program has ended, so the replica ends too, and is started again."""
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
    """Prints why the start failed, as the log's last line, where people look for it."""
    words = what_is_missing(error, os.getcwd()) or "".join(
        traceback.format_exception_only(type(error), error)
    )
    print("The service did not start:", *words.split(), file=sys.stderr)


def _serve(job: Job, worker: int) -> None:
    """Runs BentoML's worker on the inherited socket."""
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
    """Runs `work` and ends the process, which threads of the user's code must not keep alive."""
    status = 1
    try:
        status = work()
    except BaseException as error:  # the last boundary: the log has it, and the process ends
        traceback.print_exc()
        _say_last(error)
    if status:
        _wait_for_models()
    _leave(status)


def _wait_for_models() -> None:
    """Waits for all files of models: native code cannot open a placeholder, and a revision fails
    after a few failed starts. So the next start finds all files whole."""
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
