"""The program of a build's pod, run as one, with a door behind which a test answers."""

from __future__ import annotations

import io
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from uv import find_uv_bin

from hotplate.serving.replica.environments import bytecode
from hotplate.serving.replica.environments.spec import read_spec
from hotplate.serving.replica.environments.steps import BuildPlaces, notes, steps, variables
from hotplate.serving.replica.inside.building.program import (
    BuildEnded,
    BuildInstructions,
    BuildOutput,
    build,
    killed_for_memory,
)
from hotplate.serving.replica.inside.building.step import Step
from hotplate.serving.replica.payload import make_payload
from hotplate.serving.replica.secret_values import SecretSet
from tests.serving.replica.environments.test_builder import bento_with_wheel, image_of

PUBLISHED = {"published": "a" * 64}
REFUSED = {"error": {"code": "bad_environment", "message": "it has 3,000,000 files"}}
NO_ROOM = {"error": {"code": "no_space", "message": "the store is full"}}
PROGRAM = "hotplate.serving.replica.inside.building.program"


@dataclass
class Door:
    """An agent's, as far as builds ask it."""

    path: Path
    answers: list[bytes]
    asked: list[bytes] = field(default_factory=list)


@contextmanager
def door(folder: Path, *answers: bytes) -> Iterator[Door]:
    found = Door(folder / "agent.sock", list(answers))
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(found.path))
        listening.listen()

        def serve() -> None:
            for answer in answers:
                caller, _ = listening.accept()
                with caller, caller.makefile("rb") as said:
                    found.asked.append(said.readline())
                    caller.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield found


def line(answer: dict[str, Any]) -> bytes:
    return json.dumps(answer).encode() + b"\n"


@dataclass
class Ran:
    status: int
    printed: str
    ended: dict[str, Any] | None
    env: Path


def instructions(folder: Path, secrets: SecretSet, *commands: str) -> dict[str, Any]:
    bento = bento_with_wheel(folder / "bento", image={"post_commands": list(commands)})
    spec = read_spec(bento, image_of(bento), {"GIVEN": "for-the-build"}, secrets)
    scratch = folder / "scratch"
    places = BuildPlaces(
        root=folder / "env",
        interpreter=Path(sys.executable).resolve(),
        uv=Path(find_uv_bin()),
        packages=scratch / "packages",
        bento=bento,
        sources=bento / "src",
        copy=bento,
        work=scratch,
        home=scratch / "home",
        secrets_home=scratch / "bentoml",
    )
    return {
        "python_version": spec.python_version,
        "steps": [vars(step) for step in steps(spec, places, Path(bytecode.__file__).read_text())],
        "env": variables(spec, places, {}),
        "memory_bytes": 1 << 30,
        "notes": notes(spec),
        "folders": [str(folder / "env"), str(scratch / "home"), str(scratch / "bentoml")],
        "masked": secrets.texts,
        "secrets": (
            {"folder": str(folder / "memory"), "of": "it", "files": dict(secrets.files)}
            if secrets.files
            else {}
        ),
    }


def run(folder: Path, door: Path, *commands: str, secrets: SecretSet | None = None) -> Ran:
    told, ended = folder / "build.json", folder / "ended"
    told.write_text(json.dumps(instructions(folder, secrets or SecretSet(), *commands)))
    parts = make_payload(folder / "parts")
    done = subprocess.run(
        [str(Path(sys.executable).resolve()), "-m", PROGRAM, str(told), str(door), str(ended)],
        env={"PYTHONPATH": str(parts)},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    failure = json.loads(ended.read_text()) if ended.exists() else None
    return Ran(done.returncode, done.stdout, failure, folder / "env")


def test_it_builds_what_the_bento_asks_for_and_has_it_published(tmp_path: Path) -> None:
    with door(tmp_path, line(PUBLISHED)) as agent:
        ran = run(tmp_path, agent.path, "echo it has $GIVEN")
    assert (ran.status, ran.ended) == (0, None)
    assert agent.asked == [b'{"publish": true}\n']
    assert "\nit has for-the-build\n" in ran.printed
    assert ran.printed.endswith(f"# {PUBLISHED['published']}\n")
    subprocess.run([str(ran.env / "bin" / "python"), "-c", "import tiny"], check=True, env={})
    assert list(ran.env.rglob("tiny*.pyc"))


def test_a_step_that_fails_ends_it_with_its_reason_and_nothing_is_published(
    tmp_path: Path,
) -> None:
    with door(tmp_path, line(PUBLISHED)) as agent:
        ran = run(tmp_path, agent.path, "echo no model here; exit 3", "echo never")
    assert ran.status == 1
    assert ran.ended is not None
    assert "no model here" in ran.ended["sentence"]
    assert not ran.ended["retry"]
    assert "never" not in ran.printed.splitlines()
    assert agent.asked == []


def test_nothing_of_a_step_runs_on_and_one_that_is_killed_says_what_it_may_use(
    tmp_path: Path,
) -> None:
    with door(tmp_path, line(PUBLISHED)) as agent:
        ran = run(tmp_path, agent.path, "sleep 1000 & echo $!", "kill -9 $$")
    assert ran.ended is not None
    assert "more than the 1024 MiB" in ran.ended["sentence"]
    pid = int(next(each for each in ran.printed.splitlines() if each.isdecimal()))
    assert not runs(pid)


def runs(pid: int) -> bool:
    """One that has ended may wait for ever for whoever inherits it here."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize(
    ("answer", "sentence", "retry"),
    [(REFUSED, "3,000,000 files", False), (NO_ROOM, "the store is full", True)],
)
def test_what_the_agent_refuses_is_no_environment(
    answer: dict[str, Any], sentence: str, retry: bool, tmp_path: Path
) -> None:
    with door(tmp_path, line(answer)) as agent:
        ran = run(tmp_path, agent.path)
    assert ran.status == 1
    assert ran.ended is not None
    assert sentence in ran.ended["sentence"]
    assert ran.ended["retry"] is retry


def test_an_agent_that_breaks_off_is_asked_again(tmp_path: Path) -> None:
    with door(tmp_path, b"", b'{"publ', line(PUBLISHED)) as agent:
        ran = run(tmp_path, agent.path)
    assert ran.status == 0
    assert len(agent.asked) == 3


def test_secrets_reach_its_commands_and_stand_in_its_log_as_stars(tmp_path: Path) -> None:
    secrets = SecretSet({"TOKEN": "xyz-secret"}, {"key.pem": "a-private-key"}, "digest")
    with door(tmp_path, line(PUBLISHED)) as agent:
        ran = run(
            tmp_path,
            agent.path,
            "echo t=$TOKEN; cat $BENTOML_HOME/key.pem",
            'test "$TOKEN" = xyz-secret',
            secrets=secrets,
        )
    assert ran.status == 0
    assert "\nt=***\n***" in ran.printed
    assert "xyz-secret" not in ran.printed.replace('test "$TOKEN"', "")
    assert "a-private-key" not in ran.printed


def test_its_control_group_counts_those_that_were_killed_for_memory(tmp_path: Path) -> None:
    second, first = tmp_path / "memory.events", tmp_path / "memory.oom_control"
    assert killed_for_memory([second, first]) == 0
    first.write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 2\n")
    assert killed_for_memory([second, first]) == 2
    second.write_text("low 0\nhigh 0\nmax 7\noom 1\noom_kill 1\noom_group_kill 0\n")
    assert killed_for_memory([second, first]) == 1


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    told = BuildInstructions("3.11", [], {}, 0, folders=[str(tmp_path / "file" / "below")])
    with pytest.raises(BuildEnded, match="Not a directory"):
        build(told, BuildOutput([], io.BytesIO()))


def test_commands_of_the_author_find_a_copy_of_the_bento_that_they_may_write(
    tmp_path: Path,
) -> None:
    (tmp_path / "bento").mkdir()
    (tmp_path / "bento" / "file").write_text("as it was")
    (tmp_path / "bento" / "file").chmod(0o444)
    copies = {str(tmp_path / "bento"): str(tmp_path / "copy")}
    step = vars(Step("write", ("/bin/sh", "-c", "echo new >> file"), str(tmp_path / "copy")))
    build(BuildInstructions("3.11", [step], {}, 0, copies=copies), BuildOutput([], io.BytesIO()))
    assert (tmp_path / "copy" / "file").read_text() == "as it wasnew\n"
    assert (tmp_path / "bento" / "file").read_text() == "as it was"


def test_steps_have_the_image_s_variables_and_its_programs_after_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = {"UV_INDEX": "the image's", "GIVEN": "the image's", "PYTHONPATH": "/parts"}
    for name, value in {**image, "KUBERNETES_SERVICE_HOST": "10.96.0.1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PATH", "/image:/bin:/usr/bin")
    step = vars(Step("show", ("env",), str(tmp_path)))
    printed = io.BytesIO()
    told = BuildInstructions("3.11", [step], {"GIVEN": "the build's", "PATH": "/env/bin"}, 0)
    build(told, BuildOutput([], printed))
    found = dict(
        line.split("=", 1) for line in printed.getvalue().decode().splitlines() if "=" in line
    )
    assert (found["UV_INDEX"], found["GIVEN"]) == ("the image's", "the build's")
    assert found["PATH"] == "/env/bin:/image:/bin:/usr/bin"
    assert not {"PYTHONPATH", "KUBERNETES_SERVICE_HOST"} & found.keys()
