"""What a replica learns is told its node's agent once, and comes to it at its start."""

from __future__ import annotations

import json
import queue
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from hotplate.serving.replica.inside import learnt
from hotplate.serving.replica.inside.learnt import ASKED, LearntFiles, begin
from tests.support.patience import PATIENCE_S

LOOK_S = 0.01
KEPT = {"kept": True}
BUSY = {"error": {"code": "cache_error", "message": "ask later"}}
REFUSED = {"error": {"code": "bad_environment", "message": "a pipe"}}


class Agent:
    """The door of one, which answers as it is told and hangs up when it is told nothing."""

    def __init__(self, path: Path) -> None:
        self.answers: queue.Queue[object] = queue.Queue()
        self.asked: queue.Queue[bytes] = queue.Queue()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._serving = threading.Thread(target=self._serve)
        self._serving.start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._serving.join()
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection, connection.makefile("rb") as said:
                line = said.readline()
                answer = self.answers.get() if not self.answers.empty() else KEPT
                if answer is not None:
                    connection.sendall(json.dumps(answer).encode() + b"\n")
                self.asked.put(line)


@pytest.fixture
def node(tmp_path: Path) -> Path:
    (tmp_path / "node").mkdir()
    return tmp_path / "node"


@pytest.fixture
def own(tmp_path: Path) -> Path:
    (tmp_path / "own").mkdir()
    return tmp_path / "own"


@pytest.fixture
def agent(node: Path) -> Iterator[Agent]:
    made = Agent(node / "agent.sock")
    yield made
    made.close()


def compiled(folder: Path, name: str) -> None:
    (folder / "compiled" / "triton").mkdir(parents=True, exist_ok=True)
    (folder / "compiled" / "triton" / name).write_bytes(b"kernel")


def test_what_earlier_ones_have_compiled_is_there_to_be_written(node: Path, own: Path) -> None:
    begin(node, own)
    assert list(own.iterdir()) == []
    compiled(node, "a.so")
    (node / "compiled" / "triton" / "a.so").chmod(0o444)
    begin(node, own)
    (own / "compiled" / "triton" / "a.so").write_bytes(b"mine")
    compiled(own, "b.so")


def test_a_copy_that_fails_leaves_nothing_and_the_start_goes_on(
    node: Path, own: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    compiled(node, "a.so")
    (node / "compiled" / "gone").symlink_to("nowhere")
    begin(node, own)
    assert list(own.iterdir()) == []
    assert "could not be copied" in capsys.readouterr().err


def test_only_what_is_new_is_asked_for(node: Path, own: Path, agent: Agent) -> None:
    compiled(node, "a.so")
    (node / "modules.json").write_text('["bentoml", "torch"]')
    begin(node, own)
    found = LearntFiles(node, own, LOOK_S)
    (own / "modules.json").write_text('["torch", "bentoml"]')
    found.last()
    assert agent.asked.empty()
    again = LearntFiles(node, own, LOOK_S)
    compiled(own, "b.so")
    assert agent.asked.get(timeout=PATIENCE_S) == ASKED
    (own / "modules.json").write_text('["torch", "bentoml", "numpy"]')
    assert agent.asked.get(timeout=PATIENCE_S) == ASKED
    again.last()
    assert agent.asked.empty()


def test_what_an_agent_could_not_keep_is_asked_for_again(
    node: Path, own: Path, agent: Agent
) -> None:
    for answer in (BUSY, None, ["kept?"], KEPT):
        agent.answers.put(answer)
    found = LearntFiles(node, own, LOOK_S)
    compiled(own, "a.so")
    for _ in range(4):
        assert agent.asked.get(timeout=PATIENCE_S) == ASKED
    found.last()
    assert agent.asked.empty()


def test_what_is_refused_is_not_asked_for_again(node: Path, own: Path, agent: Agent) -> None:
    agent.answers.put(REFUSED)
    found = LearntFiles(node, own, LOOK_S)
    compiled(own, "a.so")
    assert agent.asked.get(timeout=PATIENCE_S) == ASKED
    found.last()
    assert agent.asked.empty()
    assert agent.answers.empty()


def test_the_end_of_a_pod_asks_once_more_whatever_failed_before(
    node: Path, own: Path, agent: Agent
) -> None:
    found = LearntFiles(node, own, look_s=PATIENCE_S)
    compiled(own, "a.so")
    found.last()
    assert agent.asked.get(timeout=PATIENCE_S) == ASKED


def test_the_end_of_a_pod_waits_for_no_agent_that_is_away_or_hangs(
    node: Path, own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = LearntFiles(node, own, look_s=PATIENCE_S)
    compiled(own, "a.so")
    found.last()
    monkeypatch.setattr(learnt, "LAST_S", 0.05)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(node / "agent.sock"))
        listener.listen()
        hangs = LearntFiles(node, own, look_s=PATIENCE_S)
        compiled(own, "b.so")
        hangs.last()


@pytest.mark.parametrize("content", ["", "{", "3", "[[1]]", "null"])
def test_what_is_no_list_of_modules_is_none(
    node: Path, own: Path, agent: Agent, content: str
) -> None:
    (node / "modules.json").write_text(content)
    found = LearntFiles(node, own, LOOK_S)
    (own / "modules.json").write_text(content)
    found.last()
    assert agent.asked.empty()
