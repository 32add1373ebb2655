"""Builds an environment in a pod, and has the node's agent publish it.

    python3.X -m hotplate.serving.replica.inside.building.program INSTRUCTIONS DOOR ENDED

The file INSTRUCTIONS says which steps to run. What they print is the pod's log, secrets as stars.
Then the agent is asked at its DOOR for the result to be published, when nothing of the build runs
any longer. Why a build has failed is written to the file ENDED: whoever finds nothing there knows
that it was killed. Python >= 3.9, standard library only: the environment is not there yet.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from hotplate.serving.replica.inside.building.mask import Mask
from hotplate.serving.replica.inside.building.step import (
    MOST_LOG_BYTES,
    TAIL_BYTES,
    Step,
    StepFailure,
    after,
    printed_too_much,
)
from hotplate.serving.replica.inside.own_folder import copy_bento
from hotplate.serving.replica.inside.secret_files import place

ASKED = b'{"publish": true}\n'
MOST_ANSWER_BYTES = 64 << 10
MOST_SENTENCE = 1000
"""Characters: Kubernetes keeps 4 KiB of the file."""
LOOK_S = 0.2
AGENT_AWAY_S = 1.0
AGENT_TRIES = 120
"""So often an agent is asked that has ended meanwhile: its pod is replaced within a minute."""
MEMORY_COUNTS = (
    Path("/sys/fs/cgroup/memory.events"),
    Path("/sys/fs/cgroup/memory/memory.oom_control"),
)
"""Of control groups of version 2, and of version 1: the first that is there counts."""
PASSING = frozenset(["no_space", "origin_busy", "origin_unavailable"])
"""Codes of an agent's answer that another try may help."""


class BuildEnded(Exception):
    """The build has failed."""

    def __init__(self, failure: StepFailure) -> None:
        super().__init__(failure.sentence)
        self.failure = failure


@dataclass(frozen=True)
class BuildInstructions:
    """What a build is told."""

    python_version: str
    steps: list[dict[str, Any]]
    env: dict[str, str]
    """Of all steps, over those of the image; the image's PATH comes after theirs."""
    memory_bytes: int
    """What all of it may use together."""
    notes: str = ""
    """What the log begins with."""
    folders: list[str] = field(default_factory=list)
    """They are made first."""
    copies: dict[str, str] = field(default_factory=dict)
    """Folders of bentos, and where their own commands find them to write to."""
    masked: list[str] = field(default_factory=list)
    """Texts that stand in the log as stars."""
    secrets: dict[str, Any] = field(default_factory=dict)
    """As `secret_files.place` takes them; empty = none is a file."""


class BuildOutput:
    """The pod's log: what the build prints, masked."""

    def __init__(self, texts: list[str], to: BinaryIO) -> None:
        self._texts, self._to = texts, to
        self._mask = Mask(texts)
        self._bytes = 0
        self.tail = b""
        """The end of what the last step has printed."""

    def begin(self, header: str) -> None:
        self.write(header.encode())
        self.rest()
        self.tail = b""

    def write(self, data: bytes) -> None:
        """Raises `BuildEnded` when it was too much."""
        self._show(self._mask.feed(data))
        self._bytes += len(data)
        if self._bytes > MOST_LOG_BYTES:
            raise BuildEnded(printed_too_much(MOST_LOG_BYTES))

    def rest(self) -> None:
        """Nothing follows for now."""
        self._show(self._mask.rest())

    def _show(self, data: bytes) -> None:
        self.tail = (self.tail + data)[-TAIL_BYTES:]
        self._to.write(data)
        self._to.flush()


def build(told: BuildInstructions, output: BuildOutput) -> None:
    """Runs all steps. Raises `BuildEnded`."""
    output.begin(told.notes)
    try:
        for folder in told.folders:
            os.makedirs(folder, exist_ok=True)
        for tree, to in told.copies.items():
            copy_bento(Path(tree), Path(to), linked=())
        if told.secrets:
            place(told.env["BENTOML_HOME"], told.secrets)
    except OSError as error:
        raise BuildEnded(StepFailure(str(error))) from None
    for each in told.steps:
        step: Step | None = Step(**each)
        while step is not None:
            step = _run(step, told, output)


def _run(step: Step, told: BuildInstructions, output: BuildOutput) -> Step | None:
    """Runs a step; the one to run in its place now, if any."""
    output.begin(step.header)
    before = killed_for_memory()
    status = _status(step, told, output)
    if status == -signal.SIGKILL or (status and killed_for_memory() > before):
        raise BuildEnded(
            StepFailure(
                f"The step {step.name!r} of building the environment was killed; most likely it "
                f"used more than the {told.memory_bytes >> 20} MiB of memory that builds may: have "
                "it use less."
            )
        )
    next_step = after(step, status, output.tail.decode(errors="replace"), told.python_version)
    if isinstance(next_step, StepFailure):
        raise BuildEnded(next_step)
    return next_step


def killed_for_memory(counts: Sequence[Path] = MEMORY_COUNTS) -> int:
    """How many processes of this container were, as far as its control group shows."""
    for path in counts:
        with suppress(OSError, ValueError):
            said = dict(line.split() for line in path.read_text().splitlines())
            return int(said.get("oom_kill", 0))
    return 0


def _status(step: Step, told: BuildInstructions, output: BuildOutput) -> int:
    """How it ends; nothing of it runs then."""
    process = subprocess.Popen(
        step.command,
        cwd=step.cwd,
        env={**_of_image(os.environ), **told.env, "PATH": _path(told.env, os.environ)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        bufsize=0,
        start_new_session=True,
    )
    assert process.stdout is not None
    try:
        _show_all(process, process.stdout.fileno(), output)
        return process.wait()
    finally:
        _end_all(process)
        process.stdout.close()
        output.rest()


def _of_image(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that the image has: its package indexes and authorities among them."""
    return {
        name: value
        for name, value in environ.items()
        if name != "PYTHONPATH" and not name.startswith("KUBERNETES_")
    }


def _path(*environs: Mapping[str, str]) -> str:
    return os.pathsep.join(filter(None, (environ.get("PATH") for environ in environs)))


def _show_all(process: subprocess.Popen[bytes], pipe: int, output: BuildOutput) -> None:
    """Until it has ended: what it has started may hold the pipe open for longer."""
    while True:
        ended = process.poll() is not None
        readable, _, _ = select.select([pipe], [], [], 0 if ended else LOOK_S)
        data = os.read(pipe, 1 << 16) if readable else b""
        output.write(data)
        if (ended or readable) and not data:
            return


def _end_all(process: subprocess.Popen[bytes]) -> None:
    """Kill whatever is left of a step; in a pod that is all that runs beside us."""
    with suppress(ProcessLookupError, PermissionError):
        if os.getpid() == 1:
            os.kill(-1, signal.SIGKILL)
        else:
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    with suppress(ChildProcessError):
        while os.getpid() == 1 and os.waitpid(-1, 0):
            pass


def publish(door: str) -> str:
    """Has the agent take over and publish what was built; its manifest. Raises `BuildEnded`."""
    for _ in range(AGENT_TRIES):
        try:
            answer = _asked(door)
        except OSError:
            answer = b""
        if answer:
            return _manifest(answer)
        select.select([], [], [], AGENT_AWAY_S)
    raise BuildEnded(StepFailure("The node's agent does not answer; the build waits.", retry=True))


def _asked(door: str) -> bytes:
    """A line; empty where it has broken off."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as agent:
        agent.connect(door)
        agent.sendall(ASKED)
        with agent.makefile("rb") as said:
            line = said.readline(MOST_ANSWER_BYTES)
    return line if line.endswith(b"\n") else b""


def _manifest(answer: bytes) -> str:
    said = json.loads(answer)
    if "published" in said:
        return str(said["published"])
    error = said["error"]
    raise BuildEnded(
        StepFailure(
            f"The environment cannot be used as it was built: {error['message']}",
            retry=error["code"] in PASSING,
            no_room=error["code"] == "no_space",
        )
    )


def main(instructions: str, door: str, ended: str) -> int:
    """Returns the exit status: 0 only once the environment is published."""
    signal.signal(signal.SIGTERM, lambda *_: os._exit(128 + signal.SIGTERM))  # as the first process
    told = BuildInstructions(**json.loads(Path(instructions).read_bytes()))
    output = BuildOutput(told.masked, sys.stdout.buffer)
    try:
        build(told, output)
        output.begin("# published by the node's agent\n# " + publish(door) + "\n")
    except BuildEnded as error:
        failure = {**asdict(error.failure), "sentence": error.failure.sentence[:MOST_SENTENCE]}
        del failure["log"]  # it is the end of the pod's log
        Path(ended).write_text(json.dumps(failure), encoding="utf-8")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
