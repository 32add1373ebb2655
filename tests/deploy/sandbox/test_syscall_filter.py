"""The filter of calls: as a table, in a real kernel, and under programs as services are."""

from __future__ import annotations

import errno
import json
import platform
import struct
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from hotplate.deploy.sandbox import syscall_filter

_FILTERED = Path(__file__).with_name("filtered.py")
_LIMIT_S = 60.0
_ALLOWED = 0
_X86, _ARM, _I386 = 0xC000003E, 0xC00000B7, 0x40000003
_NEWUSER, _NEWNET, _NEWNS, _NEWPID = 0x10000000, 0x40000000, 0x20000, 0x20000000

here = pytest.mark.skipif(
    platform.machine() not in ("x86_64", "aarch64"), reason="no filter for this machine"
)


def test_calls_that_no_service_needs_are_refused_on_both_machines() -> None:
    for mount, bpf, keyctl, clone3 in ((165, 321, 250, 435), (40, 280, 219, 435)):
        machine, abi = ("x86_64", _X86) if mount == 165 else ("aarch64", _ARM)
        for number in (mount, bpf, keyctl):
            assert _verdict(machine, abi, number) == errno.EPERM
        assert _verdict(machine, abi, clone3) == errno.ENOSYS


def test_whatever_is_not_named_is_allowed() -> None:
    refused = {call: numbers[0] for call, numbers in syscall_filter.CALLS.items()}
    ordinary = set(range(600)) - set(refused.values())
    assert {_verdict("x86_64", _X86, number) for number in ordinary} == {_ALLOWED}
    for call, number in refused.items():  # with no argument that anybody means
        if number is not None and call not in ("clone", "unshare", "ioctl", "setsockopt"):
            assert _verdict("x86_64", _X86, number, *[0xFFFF] * 4) != _ALLOWED, call


def test_other_abis_of_the_same_machine_do_not_go_around_it() -> None:
    assert _verdict("x86_64", _I386, 20) == errno.ENOSYS  # getpid of 32 bits
    assert _verdict("x86_64", _X86, 0x40000000 + 39) == errno.ENOSYS  # getpid of x32
    assert _verdict("aarch64", 0x40000028, 20) == errno.ENOSYS


def test_only_users_and_a_network_may_be_made_and_entered() -> None:
    unshare, clone, setns = 272, 56, 308
    for flags in (_NEWNET, _NEWUSER | _NEWNET, 0x400):
        assert _verdict("x86_64", _X86, unshare, flags) == _ALLOWED
    for flags in (_NEWNS, _NEWUSER | _NEWNS, _NEWNET | _NEWPID, 0x80, 0x2000000, 0x8000000):
        assert _verdict("x86_64", _X86, unshare, flags) == errno.EPERM
    assert _verdict("x86_64", _X86, clone, 17 | 0x100) == _ALLOWED
    assert _verdict("x86_64", _X86, clone, 17 | _NEWUSER) == errno.EPERM
    assert _verdict("x86_64", _X86, setns, 3, _NEWNET) == _ALLOWED
    assert _verdict("x86_64", _X86, setns, 3, 0) == errno.EPERM
    assert _verdict("x86_64", _X86, setns, 3, _NEWNS) == errno.EPERM


def test_sockets_are_those_of_the_internet_and_of_this_machine() -> None:
    def asked(family: int, protocol: int = 0) -> int:
        return _verdict("x86_64", _X86, 41, family, 1, protocol)

    assert [asked(family) for family in (1, 2, 10)] == [_ALLOWED] * 3
    assert {asked(family) for family in (15, 17, 21, 30, 38, 40, 44)} == {errno.EAFNOSUPPORT}
    assert [asked(16, protocol) for protocol in (0, 15)] == [_ALLOWED] * 2
    assert [asked(16, protocol) for protocol in (12, 16)] == [errno.EPROTONOSUPPORT] * 2


def test_no_file_is_made_that_makes_its_user_of_who_runs_it() -> None:
    calls = {"open": 2, "creat": 85, "mknod": 133, "chmod": 90, "fchmod": 91}
    before = {"open": (1, 0o100)}
    for call, number in calls.items():
        for mode, verdict in ((0o755, _ALLOWED), (0o2755, _ALLOWED), (0o4755, errno.EPERM)):
            assert _verdict("x86_64", _X86, number, *before.get(call, (1,)), mode) == verdict, call
    openat, fchmodat2 = 56, 452
    for flags in (0o100, 0o20200000):
        assert _verdict("aarch64", _ARM, openat, 3, 1, flags, 0o4700) == errno.EPERM
    assert _verdict("aarch64", _ARM, openat, 3, 1, 0o2000, 0o4700) == _ALLOWED  # none is made
    assert _verdict("aarch64", _ARM, fchmodat2, 3, 1, 0o4700) == errno.EPERM


def test_a_port_is_shared_by_who_is_another_user_outside_only() -> None:
    setsockopt, reuse = 54, (3, 1, 15)
    assert _answer("x86_64", _X86, setsockopt, *reuse) == 0x00050000  # "done", and nothing is
    assert _answer("x86_64", _X86, setsockopt, *reuse, own_users=True) == 0x7FFF0000
    assert _verdict("x86_64", _X86, setsockopt, 3, 1, 2) == _ALLOWED


def test_a_machine_that_is_not_known_has_no_filter() -> None:
    with pytest.raises(LookupError, match="pdp11"):
        syscall_filter.program("pdp11")


@here
def test_the_kernel_refuses_what_the_table_says() -> None:
    errors = _errors(syscall_filter.program().hex())
    hidden = {call for call in errors if call.startswith(("io_uring", "clone3", "openat2"))}
    assert {errors[call] for call in hidden} == {errno.ENOSYS}
    sockets = {"socket", "socketpair"}
    assert {errors[call] for call in sockets} == {errno.EAFNOSUPPORT}
    # with arguments that nobody means: `setsockopt` and `ioctl` of nonsense are nonsense
    rest = set(errors) - hidden - sockets - {"setsockopt", "ioctl"}
    assert {call: errors[call] for call in rest if errors[call] != errno.EPERM} == {}


@here
def test_without_the_filter_the_kernel_has_other_answers() -> None:
    errors = _errors("")
    for call in ("clone3", "io_uring_enter", "kcmp", "unshare", "setns", "keyctl"):
        assert errors[call] not in (errno.EPERM, errno.ENOSYS), call


_PROGRAMS = {
    "threads": """
        import threading
        done = []
        threads = [threading.Thread(target=done.append, args=(n,)) for n in range(20)]
        [t.start() for t in threads]; [t.join() for t in threads]
        assert len(done) == 20
    """,
    "children": """
        import os, subprocess
        said = subprocess.check_output(["/bin/sh", "-c", "cat | tr a-z A-Z"], input=b"so")
        assert said == b"SO"
        assert os.waitpid(os.posix_spawn("/bin/true", ["true"], os.environ), 0)[1] == 0
        assert os.system("true") == 0
        if (pid := os.fork()) == 0: os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    """,
    "multiprocessing": """
        import multiprocessing as m, math
        if __name__ == "__main__":
            for way in ("fork", "spawn", "forkserver"):
                with m.get_context(way).Pool(2) as pool:
                    assert pool.map(math.sqrt, [4.0, 9.0]) == [2.0, 3.0]
            from multiprocessing.shared_memory import SharedMemory
            s = SharedMemory(create=True, size=9); s.close(); s.unlink()
    """,
    "asyncio": """
        import asyncio, sys
        async def main():
            server = await asyncio.start_server(lambda r, w: w.close(), "127.0.0.1", 0)
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            assert await reader.read() == b""
            writer.close()
            child = await asyncio.create_subprocess_exec(sys.executable, "-c", "", stdout=-1)
            assert await child.wait() == 0
            await asyncio.to_thread(print)
        asyncio.run(main())
        import uvloop
        uvloop.run(main())
    """,
    "sqlite": """
        import os, sqlite3, tempfile
        with tempfile.TemporaryDirectory() as folder, sqlite3.connect(folder + "/db") as db:
            db.execute("pragma journal_mode=wal"); db.execute("create table t (n)")
            db.execute("insert into t values (1)"); db.commit()
            assert db.execute("select * from t").fetchall() == [(1,)]
    """,
    "numpy": """
        import numpy
        a = numpy.random.default_rng(1).random((300, 300))
        assert (a @ numpy.linalg.inv(a)).trace().round() == 300
    """,
    "names and addresses": """
        import psutil, socket, ssl
        assert socket.getaddrinfo("localhost", 80)
        psutil.net_if_addrs(); psutil.process_iter(); psutil.virtual_memory()
        ssl.create_default_context()
    """,
    "a debugger": """
        import ctypes, os
        libc = ctypes.CDLL(None, use_errno=True)
        if (child := os.fork()) == 0:
            libc.ptrace(0, 0, 0, 0); os.execv("/bin/true", ["true"])
        assert os.WIFSTOPPED(os.waitpid(child, 0)[1])
        libc.ptrace(7, child, 0, 0)
        assert os.waitpid(child, 0)[1] == 0
    """,
}


@here
@pytest.mark.parametrize("name", _PROGRAMS)
def test_programs_as_services_are_do_not_notice_it(name: str, tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(textwrap.dedent(_PROGRAMS[name]))
    run = _run(syscall_filter.program().hex(), sys.executable, str(file))
    assert (run.returncode, run.stderr) == (0, "")


_TRY_ALL = """
import ctypes, json, sys
libc = ctypes.CDLL(None, use_errno=True)
errors = {}
for call, number in json.loads(sys.argv[1]).items():
    result = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(-1)] * 6)
    errors[call] = ctypes.get_errno() if result < 0 else 0
print(json.dumps(errors))
"""


def _errors(text: str) -> dict[str, int]:
    """What each call of the table gets with nonsense as its arguments, which changes nothing."""
    column = 0 if platform.machine() == "x86_64" else 1
    calls = {call: numbers[column] for call, numbers in syscall_filter.CALLS.items()}
    # -1 is the question which personality there is, and a name for all namespaces at once.
    wanted = {
        call: number
        for call, number in calls.items()
        if number is not None and call not in ("personality", "vhangup", "clone")
    }
    run = _run(text, sys.executable, "-I", "-S", "-c", _TRY_ALL, json.dumps(wanted))
    found: dict[str, int] = json.loads(run.stdout)
    return found


def _run(text: str, *program: str) -> subprocess.CompletedProcess[str]:
    call = str(syscall_filter.SECCOMP[platform.machine()])
    argv = [sys.executable, "-I", "-S", str(_FILTERED), call, text, *program]
    return subprocess.run(argv, capture_output=True, text=True, timeout=_LIMIT_S, check=False)


def _verdict(machine: str, abi: int, number: int, *arguments: int) -> int:
    """The error that a call gets; 0 where it is allowed."""
    answer = _answer(machine, abi, number, *arguments)
    return 0 if answer == 0x7FFF0000 else answer & 0xFFFF


def _answer(machine: str, abi: int, number: int, *arguments: int, own_users: bool = False) -> int:
    """What is returned for a call, by the rules of classic BPF."""
    words = [*arguments, *[0] * (6 - len(arguments))]
    call = struct.pack("=IIQ6Q", number, abi, 0, *words)
    program = list(
        struct.iter_unpack("=HBBI", syscall_filter.program(machine, own_users=own_users))
    )
    at = loaded = 0
    while True:
        code, yes, no, value = program[at]
        at += 1
        if code == 0x20:
            (loaded,) = struct.unpack_from("=I", call, value)
        elif code == 0x06:
            return int(value)
        else:
            holds = {0x15: loaded == value, 0x35: loaded >= value, 0x45: bool(loaded & value)}
            at += yes if holds[code] else no
