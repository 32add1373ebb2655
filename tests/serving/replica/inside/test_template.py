"""A process that imports once and is forked, with BentoML's own worker in its children."""

from __future__ import annotations

import asyncio
import json
import os
import re
import select
import shutil
import signal
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hotplate.deploy.local.runtime import Command, Warm
from hotplate.serving.replica.inside.journal import FILE_NAME, phases_in
from hotplate.serving.replica.inside.modules import BASICS, noted_modules
from tests.support.patience import PATIENCE_S
from tests.support.replica.bentos import write_bento
from tests.support.replica.replicas import (
    Agent,
    Phases,
    lend_own_environment,
    runtime_of,
    workload,
)
from tests.support.replica.standbys import get, standby
from tests.support.replica.templates import Template, template

ECHO = """
    import os, random, signal, string, wave
    import bentoml
    from prometheus_client import Counter

    asked = Counter("asked", "how often")

    @bentoml.service
    class Echo:
        @bentoml.api
        def about(self) -> dict:
            asked.inc()
            print("was asked")
            return {
                "env": dict(os.environ),
                "cwd": os.getcwd(),
                "session": os.getsid(0),
                "pid": os.getpid(),
                "parent": os.getppid(),
                "random": random.random(),
                "open": {
                    number: os.readlink(f"/proc/self/fd/{number}")
                    for number in os.listdir("/proc/self/fd")
                    if os.path.exists(f"/proc/self/fd/{number}")
                },
                "child": signal.getsignal(signal.SIGCHLD) == signal.SIG_DFL,
                "digits": string.digits,
            }

        @bentoml.api
        def rewrite(self) -> None:
            string.digits = "rewritten"
"""


def prepared(
    folder: Path, replicas: int = 1, env: dict[str, str] | None = None, **config: Any
) -> list[Command]:
    """What the runtime makes of a bento with one service, for so many replicas."""
    bento = write_bento(folder / "bento", ECHO)
    lend_own_environment(folder, bento)
    runtime = runtime_of(folder, Agent({"bento": bento}))
    commands = []
    for number in range(replicas):
        directory = folder / f"replica-{number}"
        directory.mkdir()
        prepare = runtime.prepare(
            workload(env=env, config=config), directory.name, str(directory), Phases()
        )
        commands.append(asyncio.run(prepare))
    return commands


def variables_shown_of(pid: int) -> dict[str, str]:
    """As `ps` and an engine that was killed see them."""
    entries = Path(f"/proc/{pid}/environ").read_text().split("\0")
    return dict(entry.split("=", 1) for entry in entries if entry)


def small(folder: Path, names: list[str], **sources: str) -> Warm:
    """A template's program that imports these modules of the environment, some made here."""
    (command,) = prepared(folder)
    assert command.warm is not None
    own = folder / "packages"
    own.mkdir()
    for name, source in sources.items():
        (own / f"{name}.py").write_text(textwrap.dedent(source))
    Path(command.warm.job["modules"]).write_text(json.dumps(names))
    path = os.pathsep.join([command.warm.env["PYTHONPATH"], str(own)])
    return replace(command.warm, env={**command.warm.env, "PYTHONPATH": path})


def ended(process: Template) -> int:
    return process.process.wait(PATIENCE_S)


def test_children_become_replicas_of_their_own(tmp_path: Path) -> None:
    commands = prepared(tmp_path, 2, {"GREETING": "hi"})
    warm = commands[0].warm
    assert warm is not None
    Path(warm.job["modules"]).write_text(json.dumps([*BASICS, "no_such_module"]))
    with template(warm, tmp_path / "template") as parent:
        assert parent.says() == {"warm": 5, "failed": ["no_such_module"]}
        about: list[Any] = []
        urls: list[str] = []
        for number, command in enumerate(commands):
            child = parent.forked()
            log = tmp_path / f"replica-{number}" / "log"
            url, answer = child.become(command, log)
            assert answer == {"taken": True}
            about.append(json.loads(get(f"{url}/about", {})))
            urls.append(url)
            said = about[-1]
            assert said["pid"] == child.pid != parent.process.pid
            assert said["session"] == child.pid, "signals to the template's terminal are not its"
            assert said["parent"] != parent.process.pid, "it is nobody's child"
            assert said["cwd"].startswith(str(log.parent / "bento"))
            assert said["env"]["GREETING"] == "hi"
            assert not [name for name in said["env"] if name.startswith("HOTPLATE_TEMPLATE")]
            shown = variables_shown_of(child.pid)
            assert shown.items() <= said["env"].items(), "nothing of the template's"
            assert shown["HOTPLATE_REPLICA_DIR"] == str(log.parent), "an engine finds it by that"
            assert said["open"]["0"] == os.devnull
            assert said["open"]["1"] == said["open"]["2"] == str(log)
            below = str(tmp_path / "template")
            assert not [name for name in said["open"].values() if name.startswith(below)]
            assert said["child"], "it waits for its own children"
            assert "was asked" in log.read_text()
            assert "asked_total 1.0" in get(f"{url}/metrics").decode(), "its own counts alone"
            process, _ = phases_in((log.parent / FILE_NAME).read_bytes())
            assert process.end is not None
            noted = noted_modules(command.job["modules"])
            assert noted.index("bentoml") < noted.index("wave") < noted.index("uvicorn")
            assert len(noted) == len(set(noted))
        assert about[0]["random"] != about[1]["random"]

        get(f"{urls[0]}/rewrite", {})
        assert json.loads(get(f"{urls[0]}/about", {}))["digits"] == "rewritten"
        assert json.loads(get(f"{urls[1]}/about", {}))["digits"] == "0123456789"
        later, _ = parent.forked().become(commands[0], tmp_path / "replica-0" / "log")
        assert json.loads(get(f"{later}/about", {}))["digits"] == "0123456789"


def test_workers_of_a_child_are_forked_and_end_with_it(tmp_path: Path) -> None:
    (command,) = prepared(tmp_path, env={"GREETING": "hi"}, workers=3)
    assert command.warm is not None
    Path(command.warm.job["modules"]).write_text(json.dumps(BASICS))
    log = tmp_path / "replica-0" / "log"
    with template(command.warm, tmp_path / "template") as parent:
        parent.says()
        child = parent.forked()
        url, answer = child.become(command, log)
        assert answer == {"taken": True}
        about: dict[int, Any] = {}
        while len(about) < 3:  # the test's timeout ends this
            with ThreadPoolExecutor(6) as pool:
                for said in pool.map(lambda _: json.loads(get(f"{url}/about", {})), range(12)):
                    about[said["pid"]] = said
        assert {said["parent"] for said in about.values()} == {child.pid}, "no new process"
        assert "HOTPLATE_TEMPLATE_FD" in variables_shown_of(parent.process.pid)
        shown = [variables_shown_of(pid) for pid in (child.pid, *about)]
        assert not any("HOTPLATE_TEMPLATE_FD" in each for each in shown)
        assert {each["HOTPLATE_REPLICA_DIR"] for each in shown} == {str(log.parent)}
        assert len({said["random"] for said in about.values()}) == 3
        assert all(said["env"]["GREETING"] == "hi" for said in about.values())
        assert all(said["child"] for said in about.values())
        counted = re.search(r"^asked_total (\S+)", get(f"{url}/metrics").decode(), re.MULTILINE)
        assert counted is not None
        assert float(counted[1]) >= 12, "the counts of all of them"
        while json.loads(get(f"{url}/hotplate/running"))["running"]:
            pass  # a handler ends a little after its answer; of all of them
        assert "wave" in noted_modules(command.job["modules"])

        one, *others = about
        os.kill(one, signal.SIGKILL)
        assert all(map(ended_by_itself, (*others, child.pid)))
        sibling = parent.forked()
        url, answer = sibling.become(command, log)
        json.loads(get(f"{url}/about", {}))
        os.kill(sibling.pid, signal.SIGTERM)
        assert ended_by_itself(sibling.pid)
        assert parent.process.poll() is None


def test_it_lives_on_when_children_are_killed_and_ends_with_its_channel(tmp_path: Path) -> None:
    with template(small(tmp_path, ["json"]), tmp_path / "template") as parent:
        assert parent.says() == {"warm": 1, "failed": []}
        killed = parent.forked()
        os.kill(killed.pid, signal.SIGKILL)
        assert killed.says() is None
        waiting = parent.forked()
        assert waiting.pid not in (0, killed.pid)
        parent.leave()
        assert ended(parent) == 0
        assert ended_by_itself(waiting.pid)


def ended_by_itself(pid: int) -> bool:
    """Whether this process ends, which is nobody's child."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    with open(process) as file:
        return bool(select.select([file], [], [], PATIENCE_S)[0])


def test_fifty_are_forked_at_once_and_all_end(tmp_path: Path) -> None:
    with template(small(tmp_path, []), tmp_path / "template") as parent:
        assert parent.says() == {"warm": 0, "failed": []}
        children = [parent.fork() for _ in range(50)]
        assert all("forked" in child.says() for child in children)
        assert len(pids := {child.pid for child in children}) == 50
        assert parent.process.poll() is None
        parent.leave()
        assert all(map(ended_by_itself, pids))
        assert ended(parent) == 0


def test_a_child_refuses_what_was_read_too_early_but_not_gpus(tmp_path: Path) -> None:
    (command,) = prepared(tmp_path, env={"PROMETHEUS_DISABLE_CREATED_SERIES": "1"})
    assert command.warm is not None
    Path(command.warm.job["modules"]).write_text("[]")
    log = tmp_path / "replica-0" / "log"
    with template(command.warm, tmp_path / "template") as parent:
        parent.says()
        _, answer = parent.forked().become(command, log, CUDA_VISIBLE_DEVICES="1")
        assert answer == {"refused": "PROMETHEUS_DISABLE_CREATED_SERIES had been read when it came"}
        _, answer = parent.forked().become(command, log, OMP_NUM_THREADS="7")
        assert answer["refused"].startswith("OMP_NUM_THREADS, PROMETHEUS_")


def test_a_bento_with_a_module_of_an_imported_ones_name_is_refused(tmp_path: Path) -> None:
    (command,) = prepared(tmp_path)
    assert command.warm is not None
    Path(command.warm.job["modules"]).write_text('["wave", "json"]')
    source = tmp_path / "replica-0" / "bento" / "src"
    (source / "json.py").touch()  # BentoML itself imports the other one first, in any replica
    (source / "wave").mkdir()
    with template(command.warm, tmp_path / "template") as parent:
        parent.says()
        log = tmp_path / "replica-0" / "log"
        url, answer = parent.forked().become(command, log)
        assert answer == {"taken": True}, "a folder of that name alone is not found first"
        get(f"{url}/about", {})
        (source / "wave" / "__init__.py").touch()
        _, answer = parent.forked().become(command, log)
        reason = "its bento has modules of its own named wave, and others are imported"
        assert answer == {"refused": reason}


def test_one_that_imports_have_left_something_in_says_so_and_ends(tmp_path: Path) -> None:
    guilty = "from threading import Event, Thread\nThread(target=Event().wait, daemon=True).start()"
    warm = small(tmp_path, ["outer", "json"], guilty=guilty, outer="import guilty")
    with template(warm, tmp_path / "template") as parent:
        assert parent.says() == {"unforkable": "guilty left a thread"}
        assert ended(parent) == 0


ONCE = """
    import builtins, os
    if os.path.exists("weights") and not hasattr(builtins, "registered"):
        value = "whole"
    elif hasattr(builtins, "registered"):
        raise RuntimeError("it is registered already")
    else:
        builtins.registered = True
        open("weights")
"""
"""It needs a file of the bento's, and cannot be imported a second time where that was missing."""


def test_one_in_which_an_import_has_failed_half_way_says_so_and_ends(tmp_path: Path) -> None:
    """Where another import has passed over the failure, too."""
    trying = "try:\n    import once\nexcept Exception:\n    once = None"
    warm = small(tmp_path, ["trying", "once", "nowhere"], once=ONCE, trying=trying)
    why = (
        "replicas have imported what cannot be imported here: "
        "once (RuntimeError: it is registered already)"
    )
    with template(warm, tmp_path / "template") as parent:
        assert parent.says() == {"unusable": why}
        assert ended(parent) == 0
    with standby(warm, tmp_path / "standby") as process:
        assert process.says() == {"unusable": why}
        assert process.process.wait(PATIENCE_S) == 0


LEAVES = """
    import os
    folder = os.environ["LEFT_IN"]
    os.makedirs(f"{folder}/home/.cache/leaves", exist_ok=True)
    with open(f"{folder}/home/.cache/leaves/settings", "w") as file:
        file.write("mine")
    os.symlink("settings", f"{folder}/home/.cache/leaves/current")
    with open(f"{folder}/large", "wb") as file:
        file.truncate(int(os.environ["LARGE"]))
"""


def leaving(folder: Path, large: int) -> Warm:
    """A template's program one of whose modules leaves files."""
    left = folder / "left"
    left.mkdir()
    warm = small(folder, ["leaves"], leaves=LEAVES)
    env = {**warm.env, "LEFT_IN": str(left), "LARGE": str(large)}
    return replace(warm, env=env, job={**warm.job, "temporary": str(left)})


def test_a_fork_has_the_files_that_imports_have_left(tmp_path: Path) -> None:
    warm = leaving(tmp_path, 5)
    left = tmp_path / "left"
    (command,) = prepared(tmp_path / "other")
    with template(warm, tmp_path / "template") as parent:
        parent.says()
        shutil.rmtree(left)  # a fork's is its own
        left.mkdir()
        url, answer = parent.forked().become(command, tmp_path / "log", **warm.env)
        assert answer == {"taken": True}
        get(f"{url}/about", {})
    assert (left / "home/.cache/leaves/current").read_text() == "mine"
    assert (left / "large").stat().st_size == 5


def test_one_whose_imports_leave_large_files_is_not_forked(tmp_path: Path) -> None:
    with template(leaving(tmp_path, 5 << 20), tmp_path / "template") as parent:
        (why,) = parent.says().values()
        assert why == f"imports left more than 1000 files or 4 MiB in {tmp_path / 'left'}"
        assert ended(parent) == 0


def test_a_fork_of_an_import_that_goes_on_is_no_template(tmp_path: Path) -> None:
    """Both processes would read from one channel."""
    twice = "import os\nchild = os.fork()\nif child: os.waitpid(child, 0)"
    with template(small(tmp_path, ["twice"], twice=twice), tmp_path / "template") as parent:
        assert parent.says() == {"warm": 1, "failed": []}
        assert parent.forked().pid


@pytest.mark.skipif(os.getuid() != 0, reason="only root can have processes of a new user")
@pytest.mark.parametrize("most", [1, 2], ids=["first fork", "second fork"])
def test_a_fork_that_fails_is_said_and_the_template_lives_on(tmp_path: Path, most: int) -> None:
    number = 40_000 + os.getpid() % 20_000  # root may have any number of processes
    nobody = f"""
        import os, resource, signal
        os.setresuid({number}, {number}, {number})
        now, hard = resource.getrlimit(resource.RLIMIT_NPROC)
        for number, limit in ((signal.SIGUSR1, {most}), (signal.SIGUSR2, now)):
            limits = resource.RLIMIT_NPROC, (limit, hard)
            signal.signal(number, lambda *_, limits=limits: resource.setrlimit(*limits))
    """
    with template(small(tmp_path, ["nobody"], nobody=nobody), tmp_path / "template") as parent:
        assert parent.says() == {"warm": 1, "failed": []}
        parent.process.send_signal(signal.SIGUSR1)
        assert "Resource temporarily unavailable" in parent.fork().says()["refused"]
        parent.process.send_signal(signal.SIGUSR2)
        assert parent.forked().pid


def test_a_stopped_template_forks_when_it_goes_on(tmp_path: Path) -> None:
    with template(small(tmp_path, []), tmp_path / "template") as parent:
        parent.says()
        parent.process.send_signal(signal.SIGSTOP)
        given_up, child = parent.fork(), parent.fork()
        given_up.channel.close()
        parent.process.send_signal(signal.SIGCONT)
        assert "forked" in child.says()


UNIQUE = """
    import json, multiprocessing, os, random, secrets, ssl, sys, tempfile, uuid
    import numpy

    def drawn():
        first, name = tempfile.mkstemp()
        os.close(first)
        os.unlink(name)
        values = {
            "random": random.random(),
            "numpy": float(numpy.random.rand()),
            "uuid1": uuid.uuid1().hex,
            "uuid4": uuid.uuid4().hex,
            "tempfile": name,
            "secrets": secrets.token_hex(),
            "ssl": ssl.RAND_bytes(16).hex(),
            "authkey": bytes(multiprocessing.current_process().authkey).hex(),
            "semaphores": next(__import__("multiprocessing.synchronize").synchronize.SemLock._rand),
        }
        if "torch" in sys.modules:
            values["torch"] = float(sys.modules["torch"].rand(1))
        return values

    drawn()
"""


@pytest.mark.parametrize("more", [[], ["torch"]], ids=["numpy", "torch"])
def test_nothing_random_is_the_same_in_two_children(tmp_path: Path, more: list[str]) -> None:
    warm = small(
        tmp_path, ["multiprocessing.synchronize", "numpy.random", *more, "unique"], unique=UNIQUE
    )
    warm = replace(warm, template=(sys.executable, str(tmp_path / "packages" / "drawing.py")))
    drawing = """
        import json
        from hotplate.serving.replica.inside import template
        from hotplate.serving.replica.inside.worker import run

        def draw(job):
            import unique
            print(json.dumps(unique.drawn()))
            return 0

        run(lambda: template.main(draw))
    """
    (tmp_path / "packages" / "drawing.py").write_text(textwrap.dedent(drawing))
    drawn = []
    with template(warm, tmp_path / "template") as parent:
        said = parent.says()
        assert said.get("failed") == [], said
        for number in range(2):
            child = parent.forked()
            log = tmp_path / f"log-{number}"
            _, answer = child.take(warm.env, {"bento": str(tmp_path)}, log)
            assert answer == {"taken": True}
            assert ended_by_itself(child.pid)
            drawn.append(json.loads(log.read_text().splitlines()[-1]))
    assert {"random", "numpy", "uuid1", "tempfile", "authkey", *more} <= drawn[0].keys()
    assert {name for name in drawn[0] if drawn[0][name] == drawn[1][name]} == set()
