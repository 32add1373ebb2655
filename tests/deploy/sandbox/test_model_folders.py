"""A model folder while its weights arrive, read within a replica's walls by native programs and
others that know nothing of us.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy
import pytest
import safetensors.numpy

from hotplate.cache.client import TreeInfo
from hotplate.cache.manifest import CHUNK_BYTES
from hotplate.deploy.sandbox.isolation import Isolation
from hotplate.deploy.sandbox.launcher.instructions import PROCESSES, USERS
from hotplate.deploy.sandbox.process_scope import entry, launcher_argv
from hotplate.deploy.sandbox.visible_files import VisibleFiles
from tests.support.cache.fakes import AgentProcess, blob_of, publish
from tests.support.cache.view_bench import Bench, ask, needs_mounts
from tests.support.deploy.fake_runtime import NEEDED
from tests.support.patience import PATIENCE_S

pytestmark = needs_mounts

TENSORS = {name: numpy.full(CHUNK_BYTES - 200, ord(name), "uint8") for name in "ab"}
WEIGHTS = safetensors.numpy.save(TENSORS)
BLOB = blob_of(WEIGHTS)
UNHOOKED = """
import sys
from safetensors.numpy import load_file
print({name: [int(t.min()), int(t.max())] for name, t in load_file(sys.argv[1]).items()})
"""
HOOKED = """
import sys
from hotplate.serving.replica.inside.patches.streamed_safetensors import install
install()
from safetensors import safe_open
with safe_open(sys.argv[1], "np") as file:
    print(type(file).__name__, int(file.get_tensor("a").max()), flush=True)
"""
PATIENT = """
import sys
for line in sys.stdin:
    print("reads", flush=True)
    try:
        print(open(sys.argv[1], "rb").read().count(b"b"), flush=True)
    except OSError:
        print("an error", flush=True)
"""
SUMS = "{'a': [97, 97], 'b': [98, 98]}\n"


class Folder:
    """A model folder of an agent with a view, and the walls around whoever reads it."""

    def __init__(self, bench: Bench, agent: AgentProcess, model: str) -> None:
        self.agent = agent
        self.model = model
        self.tree: TreeInfo = ask(agent, "tree", model)
        assert not self.tree.complete
        self.weights = Path(self.tree.root, "model.safetensors")
        self._data = bench.folder / "data"
        self._isolation = Isolation([self._data, bench.mount])
        if self._isolation.refusal:
            pytest.skip(f"no namespaces here: {self._isolation.refusal}")
        # Of processes the first would have to be ended, and the agent's own door is for its user.
        self._isolation.up -= {PROCESSES, USERS}
        self.own = self._data / "program"
        (self.own / "tmp").mkdir(parents=True)

    def start(self, *command: object, **options: Any) -> subprocess.Popen[str]:
        shown = [self.tree.root, self.tree.view]
        env = {
            "PYTHONPATH": ":".join(sys.path),
            "HOTPLATE_TREES": str(self._data / "trees"),
            "HOTPLATE_AGENT_SOCKET": self.agent.socket,
        }
        view = VisibleFiles((*shown, *NEEDED), (self.agent.socket,), own=str(self.own))
        entering = self._isolation.entering(view, env)
        argv = [*launcher_argv(entry((), 0)), *entering.words()]
        argv += map(str, command)
        # The launcher ends, and the program is a child of ours beside it.
        fds = entering.descriptors
        started = subprocess.Popen(
            argv, env={}, stdout=subprocess.PIPE, text=True, pass_fds=fds, cwd=self.own, **options
        )
        entering.close_inherited()
        started.wait()
        started.pid, started.returncode = entering.entered_now().program, None
        return started

    def python(self, program: str, **options: Any) -> subprocess.Popen[str]:
        return self.start(sys.executable, "-c", program, self.weights, **options)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with closing(Bench(tmp_path)) as bench:
        yield bench


def arriving(bench: Bench, agent: AgentProcess) -> Folder:
    """The folder of a model whose last bytes are held back."""
    if (view := ask(agent, "status")["view"])["mount"] is None:
        pytest.skip(view["refusal"])
    model = publish(bench.folder / "store", {"model.safetensors": WEIGHTS, "config.json": b"{}"})
    bench.origin.hold(BLOB, 1)
    return Folder(bench, agent, model.digest)


def test_native_programs_wait_for_what_arrives_and_read_it_right(bench: Bench) -> None:
    with bench.start() as agent:
        folder = arriving(bench, agent)
        assert folder.weights.stat().st_size == len(WEIGHTS)
        summed = folder.start("/usr/bin/sha256sum", folder.weights)
        copied = folder.start("/bin/cp", folder.weights, folder.own / "copy")
        loaded = folder.python(UNHOOKED)
        hooked = folder.python(HOOKED)
        assert hooked.communicate(timeout=PATIENCE_S)[0] == "StreamedFile 97\n", (
            "as ever: from memory"
        )
        bench.origin.wait_for_read(BLOB, 1)
        assert [one.poll() for one in (summed, copied, loaded)] == [None] * 3
        bench.origin.release()
        digest = hashlib.sha256(WEIGHTS).hexdigest()
        assert summed.communicate(timeout=PATIENCE_S)[0] == f"{digest}  {folder.weights}\n"
        assert loaded.communicate(timeout=PATIENCE_S)[0] == SUMS
        copied.communicate(timeout=PATIENCE_S)
        assert (folder.own / "copy").read_bytes() == WEIGHTS
        assert ask(agent, "tree", folder.model, wait="all").complete
        assert not folder.weights.is_symlink() and folder.weights.read_bytes() == WEIGHTS
        assert bench.origin.reads.count((BLOB.digest, 1)) == 1
        assert agent.terminate() == 0


def test_where_the_agent_dies_a_reader_has_an_error_until_the_next_one_has_the_file(
    bench: Bench,
) -> None:
    with bench.start() as agent:
        folder = arriving(bench, agent)
        patient = folder.python(PATIENT, stdin=subprocess.PIPE)
        assert patient.stdin is not None and patient.stdout is not None
        for _ in ("before", "after"):  # what it was shown has ended
            print(file=patient.stdin, flush=True)
            assert patient.stdout.readline() == "reads\n"
            agent.kill()
            assert patient.stdout.readline() == "an error\n"
    bench.origin.release()
    with bench.start() as agent:
        assert ask(agent, "tree", folder.model, wait="all").complete
        print(file=patient.stdin, flush=True)
        counted = WEIGHTS.count(b"b")
        assert patient.communicate(timeout=PATIENCE_S)[0] == f"reads\n{counted}\n"
        assert agent.terminate() == 0
