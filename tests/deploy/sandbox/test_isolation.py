"""What code within walls sees and may do, tried from inside as root's and as an ordinary user's."""

from __future__ import annotations

import os
import resource
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from hotplate.deploy.sandbox.ids import BUILDS, SHARED, range_of
from hotplate.deploy.sandbox.isolation import Isolation
from hotplate.deploy.sandbox.launcher.instructions import (
    CALLS,
    DEVICES,
    FILES,
    LIMITS,
    PROCESSES,
    USERS,
)
from tests.deploy.sandbox.walled import (
    FORBIDDEN,
    MISSING,
    READ_ONLY,
    REFUSED,
    Place,
    open_to,
)


def test_walls_are_put_up_from_below_a_folder_that_they_hide(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("/")
    before = Isolation([tmp_path])
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    assert Isolation([tmp_path]).up == before.up


class TestFiles:
    LOOK = """
root = sys.argv[1]
tell(
    listed=sorted(os.listdir(root)),
    own=outcome(lambda: write(f"{root}/program/work/own") and read("own")),
    shared=outcome(lambda: read(f"{root}/models/mine/file")),
    shared_written=outcome(lambda: write(f"{root}/models/mine/file")),
    others=outcome(lambda: read(f"{root}/models/others/file")),
    upwards=outcome(lambda: read("../../models/others/file")),
    made_beside=outcome(lambda: os.mkdir(f"{root}/models/new")),
)
"""

    @pytest.fixture
    def models(self, here: Place) -> Place:
        for name in ("mine", "others"):
            (here.data / "models" / name).mkdir(parents=True)
            (here.data / "models" / name / "file").write_text(name)
        here.give()
        return here

    def test_that_are_hidden_are_not_there_but_for_those_that_are_shown(
        self, models: Place
    ) -> None:
        seen = models.look(self.LOOK, models.data, reads=[str(models.data / "models/mine")])
        assert seen["listed"] == ["models", "program"]
        assert (seen["own"], seen["shared"]) == ("mine", "mine")
        assert (models.own / "own").read_text() == "mine"
        assert (seen["others"], seen["upwards"]) == (MISSING, MISSING)
        assert seen["shared_written"] == READ_ONLY
        if not models.root.is_relative_to("/tmp"):
            assert seen["made_beside"] == READ_ONLY

    def test_are_all_there_without(self, models: Place) -> None:
        bare = open_to(models, FILES, PROCESSES, USERS, DEVICES)
        assert bare.look(self.LOOK, models.data)["others"] == "others"

    def test_that_are_shown_to_write_are_written(self, models: Place) -> None:
        shared = models.data / "models/mine"
        if models.user == 0:  # as the platform has it for what the replicas of root write
            shared.chmod(0o777)
        seen = models.look(
            "tell(wrote=outcome(lambda: write(sys.argv[1])))", shared / "new", writes=[str(shared)]
        )
        assert seen["wrote"] == 4 and (shared / "new").read_text() == "mine"

    def test_that_are_shown_to_write_by_all_are_whoevers_writes_there(self, models: Place) -> None:
        shared = models.data / "models/mine"
        if models.user == 0:
            os.chown(shared, SHARED, SHARED)
        code = (
            "tell(own=os.stat(sys.argv[1]).st_uid == os.getuid(), "
            "wrote=outcome(lambda: open(sys.argv[2], 'a').write('mine')), "
            "map=read('/proc/self/uid_map').split())"
        )
        first, second = (
            models.look(code, shared, shared / "new", shared=[str(shared)]) for _ in range(2)
        )
        assert (first["map"] != second["map"]) == (models.user == 0)
        assert [first["own"], second["own"], first["wrote"], second["wrote"]] == [1, 1, 4, 4]
        new = shared / "new"
        assert (new.read_text(), new.stat().st_uid) == ("minemine", models.user or SHARED)

    def test_of_the_machine_are_only_read(self, here: Place) -> None:
        """Even where the platform's user may write them."""
        theirs = here.root / "machine"
        theirs.mkdir()
        here.give()
        paths = [theirs / "new", "/etc/new", "/run/new", "/dev/new", "/sys/fs/cgroup/new"]
        seen = here.look(
            "tell(new=[outcome(lambda: write(each)) for each in sys.argv[1:]])", *paths
        )
        assert not {READ_ONLY, MISSING, FORBIDDEN}.isdisjoint(seen["new"])
        assert 4 not in seen["new"]
        assert seen["new"][1:] == [READ_ONLY] * 4

    def test_for_a_moment_are_its_own(self, here: Place) -> None:
        folders = ["/tmp", "/var/tmp", "/dev/shm"]
        code = """
for folder in sys.argv[1:]:
    write(f"{folder}/mine")
tell(listed=[sorted(os.listdir(each)) for each in sys.argv[1:]])
"""
        before = [set(os.listdir(folder)) for folder in folders]
        listed = here.look(code, *folders)["listed"]
        # Where the tests or their data lie in /tmp, the way to what is shown of them is there, too.
        places = (here.root, Path(sys.prefix))
        ways = {place.parts[2] for place in places if place.is_relative_to("/tmp")}
        assert [set(each) - ways for each in listed] == [{"mine"}] * 3
        assert not any(
            "mine" in set(os.listdir(each)) - old for each, old in zip(folders, before, strict=True)
        )
        assert (here.own / "tmp/mine").exists(), "on the disk, beside its other files"

    def test_of_homes_and_services_are_not_there(self, here: Place) -> None:
        code = "tell(seen=[outcome(lambda: os.listdir(each)) for each in sys.argv[1:]])"
        homes, run = here.look(code, "/home", "/run")["seen"]
        assert homes == []
        assert set(run) <= {"systemd", "resolvconf", "NetworkManager", "nscd"}


class TestVariables:
    def test_of_the_program_reach_it_and_nothing_before_it(self, here: Place) -> None:
        """What the loader of libraries is told is done within walls only."""
        said = here.own / "loaded"
        loud = replace(here, env={"LD_DEBUG": "libs", "LD_DEBUG_OUTPUT": str(said), "A": "b=c"})
        seen = loud.look("tell(a=os.environ['A'], loaded=os.environ['LD_DEBUG_OUTPUT'])")
        assert seen == {"a": "b=c", "loaded": str(said)}
        assert [path.name for path in here.own.glob("loaded*")] == ["loaded.2"], "its own"


class TestMounts:
    CODE = """
root = sys.argv[1]
tell(
    unmounted=outcome(lambda: call("umount2", root.encode(), 2)),
    covered=outcome(lambda: call("mount", b"/etc", b"/tmp", None, 0x1000, None)),
    namespace=outcome(lambda: call("unshare", 0x10020000)),
    unmounted_there=outcome(lambda: call("umount2", root.encode(), 2)),
    writable_there=outcome(lambda: call("mount", None, b"/", None, 0x1020, None)),
    written_there=outcome(lambda: write("/etc/hotplate-was-here")),
)
"""

    @pytest.mark.parametrize("without", [(), (CALLS,)], ids=["filtered", "unfiltered"])
    def test_cannot_be_taken_away_or_made_writable(
        self, here: Place, without: tuple[str, ...]
    ) -> None:
        """By the filter, and without it by the kernel's own rules."""
        seen = open_to(here, *without).look(self.CODE, here.data)
        assert seen["unmounted"] == seen["covered"] == REFUSED
        assert seen["namespace"] == (0 if without else REFUSED)
        assert seen["unmounted_there"] == ("Invalid argument" if without else REFUSED)
        assert seen["writable_there"] in (REFUSED, FORBIDDEN)
        assert seen["written_there"] in (READ_ONLY, FORBIDDEN)


class TestLayers:
    CODE = """
folder = sys.argv[1]
tell(
    changed=outcome(lambda: write(f"{folder}/sub/module")),
    new=outcome(lambda: write(f"{folder}/new")),
    removed=outcome(lambda: os.unlink(f"{folder}/old")),
    listed=sorted(os.listdir(folder)),
)
"""

    @pytest.fixture
    def packages(self, here: Place) -> Path:
        folder = here.data / "packages"
        (folder / "sub").mkdir(parents=True)
        for name in ("sub/module", "old"):
            (folder / name).write_text("the platform's")
        here.give()
        return folder

    def test_keep_what_is_written_to_who_wrote_it(self, here: Place, packages: Path) -> None:
        layers = [(str(packages), str(here.own / "layers/0"))]
        seen = here.look(self.CODE, packages, layers=layers)
        if seen["new"] == READ_ONLY:
            pytest.skip("no overlay can be mounted here")
        assert (seen["changed"], seen["new"], seen["removed"]) == (4, 4, None)
        assert seen["listed"] == ["new", "sub"]
        assert sorted(os.listdir(packages)) == ["old", "sub"]
        assert (packages / "sub/module").read_text() == "the platform's"


class TestUsers:
    CODE = """
tell(
    ids=[os.getuid(), os.getgid()],
    map=read("/proc/self/uid_map").split(),
    other=outcome(lambda: os.setresuid(7, 7, 7)),
)
"""

    def test_of_a_platform_of_root_are_nobody_outside(self, here: Place) -> None:
        seen = here.look(self.CODE)
        if here.user != 0:
            assert seen["ids"] == [here.user, here.user]
            assert seen["other"] == "Invalid argument", "there is nobody else"
            return
        inside, outside, count = map(int, seen["map"])
        assert (seen["ids"], inside, count) == ([0, 0], 0, 65_536)
        assert range_of(outside) == outside > BUILDS
        assert seen["other"] is None, "it may be who it likes there"
        assert here.own.stat().st_uid == outside

    def test_of_a_platform_of_root_are_root_without(self, here: Place) -> None:
        if here.user != 0:
            pytest.skip("an ordinary user's platform has one user")
        assert open_to(here, USERS).look(self.CODE)["map"][1] == "0"

    def test_have_no_power_that_no_service_needs(self, here: Place) -> None:
        code = "tell(held=int(read('/proc/self/status').split('CapEff:')[1].split()[0], 16), "
        code += "new=int(read('/proc/self/status').split('NoNewPrivs:')[1].split()[0]))"
        seen = here.look(code)
        assert seen["new"] == 1
        module, admin, tracer = 1 << 16, 1 << 21, 1 << 19
        assert not seen["held"] & (module | admin | tracer)
        assert here.user == 0 or not seen["held"]


class TestDevices:
    CODE = "tell(listed=sorted(os.listdir('/dev')), random=len(os.urandom(4)), "
    CODE += (
        "null=outcome(lambda: write('/dev/null')), terminal=outcome(lambda: os.openpty() and 1))"
    )
    USUAL = ("fd", "full", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin", "stdout")

    def test_are_the_usual_ones_and_gpus(self, here: Place) -> None:
        seen = here.look(self.CODE)
        gpus = [name for name in seen["listed"] if name.startswith(("nvidia", "dri", "kfd", "dxg"))]
        usual = sorted([*self.USUAL, "tty", "urandom", "zero"])
        assert sorted(set(seen["listed"]) - set(gpus)) == usual
        assert (seen["null"], seen["random"], seen["terminal"]) == (4, 4, 1)

    def test_are_all_there_without(self, here: Place) -> None:
        seen = open_to(here, DEVICES).look(self.CODE)
        assert set(seen["listed"]) == set(os.listdir("/dev"))


class TestLimits:
    CODE = """
import resource
kinds = (resource.RLIMIT_NPROC, resource.RLIMIT_NOFILE, resource.RLIMIT_CORE)
def lift(kind):
    soft, hard = resource.getrlimit(kind)
    try:
        resource.setrlimit(kind, (soft, hard + 1))
    except (ValueError, OSError) as error:
        return str(error)
import _thread
held = _thread.allocate_lock()
held.acquire()
_thread.stack_size(1 << 16)
def threads(most):
    for made in range(most):
        try:
            _thread.start_new_thread(held.acquire, ())
        except RuntimeError:
            return made
    return most
made, said = 0, os.pipe()
for user in range(4):
    if os.fork() == 0:
        if os.getuid() == 0:
            os.setresuid(user, user, user)
        os.write(said[1], str(threads(1100)).encode() + b" ")
        held.acquire()
os.close(said[1])
text = b""
while text.count(b" ") < 4:
    text += os.read(said[0], 100)
made = sum(map(int, text.split()))
tell(hard=[resource.getrlimit(kind)[1] for kind in kinds], lifted=[lift(kind) for kind in kinds],
     made=made)
"""

    def test_of_processes_and_files_are_those_of_the_platform_without(self, here: Place) -> None:
        code = "import resource; tell(core=resource.getrlimit(resource.RLIMIT_CORE)[1])"
        seen = open_to(here, LIMITS).look(code)
        assert seen["core"] == resource.getrlimit(resource.RLIMIT_CORE)[1] != 0

    def test_of_processes_and_files_cannot_be_lifted(self, here: Place) -> None:
        seen = here.look(self.CODE)
        processes, files, core = seen["hard"]
        assert (processes, core) == (4096, 0) and files <= 65_536
        assert None not in seen["lifted"]
        assert 3000 < seen["made"] < 4096, "whoever they are"


class TestCalls:
    CODE = "tell(keys=outcome(lambda: call('syscall', 250, 0, -3, 0)))"

    def test_that_no_service_needs_are_refused(self, here: Place) -> None:
        assert here.look(self.CODE)["keys"] == REFUSED

    def test_that_no_service_needs_are_carried_out_without(self, here: Place) -> None:
        assert isinstance(open_to(here, CALLS).look(self.CODE)["keys"], int)


def test_where_no_namespace_may_be_made_a_sentence_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hotplate.deploy.sandbox.isolation.LIMIT_S", 0.0)
    refused = Isolation([tmp_path])
    assert "timed out" in refused.refusal
    assert refused.up == frozenset()
