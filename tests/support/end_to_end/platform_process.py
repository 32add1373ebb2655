"""`hotplate up` as a user starts it, and what can be asked of it from outside."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar

from tests.support.end_to_end.any_platform import AnyPlatform
from tests.support.packages import PACKAGES
from tests.support.patience import PATIENCE_S, until
from tests.support.ports import free_range

BIN = Path(sys.executable).parent
ROLES = ("agent", "gateway", "control-plane")
DEPLOYMENT_PORTS = 60
ARENA_BYTES = 256 << 20
UNUSED_FILES_S = 3
"""So that it is seen what becomes of files that nobody uses any more."""
FORKS = "calm_s = 0\nmin_starts = 1"
"""Of `[standby]`: the second start of an environment is a fork already, as most of a user's are."""


class Platform(AnyPlatform):
    """One installation on this machine with a data directory and ports of its own.

    One that starts after another may use its environments, which take the longest to make.
    """

    databases: ClassVar[Callable[[], str] | None] = None
    """Makes the database of each that starts from now on; its URL. None = SQLite's file."""

    def __init__(
        self,
        data: Path,
        environments_of: Platform | None = None,
        ports: int = DEPLOYMENT_PORTS,
        settings: str = "",
        standby: str = FORKS,
        unused_files_s: float = UNUSED_FILES_S,
        program: Path = BIN / "hotplate",
        launcher: Sequence[str] = (),
        environ: Mapping[str, str] | None = None,
        packages: Path = PACKAGES,
        database: str = "",
    ) -> None:
        """`settings` are further lines of `hotplate.toml`, `standby` those of its section of that
        name. `program` is the `hotplate` to start, by
        `launcher` where there is one, with `environ` over our own environment. What it builds
        environments from is in `packages`. `database` is a URL; without, it is what `databases`
        makes."""
        self.data = data
        port = free_range(ports + 1)
        self.url = f"http://127.0.0.1:{port}"
        self.token = "scenario"
        self._program = program
        self._launcher = launcher
        self._environ = environ or {}
        self._process: subprocess.Popen[bytes] | None = None
        data.mkdir()
        self.shared = data.with_name(f"{data.name}.shared")
        """Tests write there too."""
        self.shared.mkdir()
        self.shared.chmod(0o777)
        (data / "admin-token").write_text(self.token)
        if environments_of is not None:
            (data / "environments").symlink_to(environments_of.data / "environments")
        if not database and Platform.databases is not None:
            database = Platform.databases()
        self.database = database
        """Its URL; empty for SQLite's file."""
        (data / "hotplate.toml").write_text(
            "[platform]\n"
            f'database_url = "{database}"\n'
            f'deployment_ports = "{port + 1}-{port + ports}"\n'
            f"arena_bytes = {ARENA_BYTES}\n"
            f"unused_files_s = {unused_files_s}\n"
            f'package_cache = "{packages}"\n'
            f'replica_writes = ["{self.shared}"]\n'
            f"{settings}"
            f"\n[standby]\n{standby}\n"
        )

    @property
    def callers_token(self) -> str:
        """What protected deployments take."""
        return (self.data / "endpoint-token").read_text().strip()

    # Its life ------------------------------------------------------------------------------

    async def start(self) -> None:
        """`hotplate up`, until it says that it is ready."""
        said = self.log.stat().st_size if self.log.exists() else 0
        process = self._spawn()

        async def ready() -> bool:
            assert process.poll() is None, f"hotplate up has ended: {self.log.read_text()}"
            return b"Hotplate is ready at" in self.log.read_bytes()[said:]

        await until(ready)

    def _spawn(self) -> subprocess.Popen[bytes]:
        flags = ("--data", str(self.data), "--port", str(self.port))
        environ = {k: v for k, v in os.environ.items() if not k.startswith(("BENTO", "PYTHON"))}
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*self._launcher, self._program, "up", *flags],
                env={**environ, **self._environ},
                stdout=log,
                stderr=log,
            )
        return self._process

    async def stop(self) -> int:
        """Ctrl-C; the exit status of `hotplate up`."""
        assert self._process is not None
        self._process.send_signal(signal.SIGINT)
        return await asyncio.to_thread(self._process.wait, PATIENCE_S)

    def kill(self) -> None:
        """SIGKILL to `hotplate up` itself, if it runs; its roles and replicas go on."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def destroy(self) -> None:
        """SIGKILL to all that is left; after a test that failed, or one that kills."""
        self.kill()
        groups = self.groups()
        for pid in self.processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for group in groups:
            _remove(group)

    @property
    def log(self) -> Path:
        """What `hotplate up` prints."""
        return self.data.with_name(f"{self.data.name}.log")

    def pid(self, role: str = "up") -> int:
        """The process of `up`, `agent`, `gateway` or `control-plane`."""
        if role == "up":
            assert self._process is not None
            return self._process.pid
        pid: int = self.noted(role)["pid"]
        return pid

    def noted(self, name: str) -> Any:
        """What the platform keeps in `run/` about a role, or about its `ports`."""
        return json.loads((self.data / "run" / f"{name}.json").read_text())

    def processes(self) -> list[int]:
        """Every process that works in the data directory: `up`, its roles and the replicas."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                with suppress(OSError):
                    words = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
                    if f"{self.data}/".encode() in words or f"{self.data}\0".encode() in words:
                        found.append(int(entry.name))
        return found

    def leftovers(self) -> list[str]:
        """What `processes` are, in words: for the message of a test that expects none."""
        found = []
        for pid in self.processes():
            with suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
                status = Path(f"/proc/{pid}/status").read_text().splitlines()
                state = [line for line in status if line.startswith(("State", "PPid", "NSpid"))]
                found.append(f"{pid}: {words} {state}")
        return found

    def groups(self) -> list[Path]:
        """Folders of the control groups that its replicas have, where they may have any."""
        noted = (self.data / "engine" / "replicas").glob("*/groups")
        return [Path(line) for file in noted for line in file.read_text().splitlines()]

    @asynccontextmanager
    async def unharmed(self) -> AsyncIterator[None]:
        roles = ("up", *ROLES)
        logs = [self.data / "logs" / f"{role}.log" for role in ROLES]
        before = [self.pid(role) for role in roles]
        sizes = [log.stat().st_size for log in logs]
        yield
        assert [self.pid(role) for role in roles] == before
        assert await self.healthy()
        for log, size in zip(logs, sizes, strict=True):
            assert "Traceback" not in log.read_text()[size:]

    async def replicas_are_gone(self, name: str) -> bool:
        folders = os.listdir(self.data / "engine" / "replicas")
        return not any(re.match(rf"{re.escape(name)}-\d+-", each) for each in folders)

    def command_flags(self) -> tuple[str, ...]:
        return ("--data", str(self.data))


@asynccontextmanager
async def running(
    data: Path,
    environments_of: Platform | None = None,
    settings: str = "",
    standby: str = FORKS,
    unused_files_s: float = UNUSED_FILES_S,
    program: Path = BIN / "hotplate",
) -> AsyncIterator[Platform]:
    """A platform of a test's own; nothing of it is left, whatever the test did to it."""
    platform = Platform(
        data,
        environments_of,
        settings=settings,
        standby=standby,
        unused_files_s=unused_files_s,
        program=program,
    )
    try:
        await platform.start()
        yield platform
    finally:
        platform.destroy()


async def output_of(
    command: list[str], environ: dict[str, str], folder: Path, fails: bool = False
) -> str:
    """What a command prints; it must exit with 0, or with something else if it `fails`."""
    status, output = await exit_of(command, environ, folder)
    assert (status != 0) == fails, output
    return output


async def exit_of(command: list[str], environ: dict[str, str], folder: Path) -> tuple[int, str]:
    """The exit status of a command, and what it prints."""
    process = await asyncio.create_subprocess_exec(
        *command,
        env=environ,
        cwd=folder,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output = (await process.communicate())[0].decode()
    return await process.wait(), output


def _remove(group: Path) -> None:
    """A control group whose processes have been killed, and the one that held it."""
    for _ in range(40):
        with suppress(OSError):
            group.rmdir()
        if not group.exists():
            break
        threading.Event().wait(0.05)  # their death is seen by nobody
    with suppress(OSError):
        group.parent.rmdir()
