"""What an installation takes for granted and a test cluster does not have: S3, PostgreSQL, and an
index of Python packages.

They run on the host, bound to its address on the bridge, where pods reach them and nobody else.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pwd
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.daemons import Daemons
from tests.cluster.errors import CannotRunHere, TestClusterError
from tests.cluster.layout import HOST_ADDRESS, NODE_NETWORK, POD_NETWORK, REPOSITORY

BUCKET = "hotplate"
STORE_URL = f"s3://{BUCKET}/blobs"
_STORE, _DATABASE, _PACKAGES = "store", "database", "packages"
_STORE_PORT, _DATABASE_PORT, _PACKAGES_PORT = 19000, 15432, 19001
_STORE_ADDRESS = f"http://{HOST_ADDRESS}:{_STORE_PORT}"
STORE_VARIABLES = {
    "AWS_ENDPOINT_URL": _STORE_ADDRESS,
    "AWS_ACCESS_KEY_ID": "anybody",
    "AWS_SECRET_ACCESS_KEY": "anything",
    "AWS_DEFAULT_REGION": "us-east-1",
}
DATABASE_URL = f"postgresql://hotplate@{HOST_ADDRESS}:{_DATABASE_PORT}/hotplate"
_PACKAGES_ADDRESS = f"http://{HOST_ADDRESS}:{_PACKAGES_PORT}"
PACKAGES_VARIABLES = {"UV_DEFAULT_INDEX": f"{_PACKAGES_ADDRESS}/simple"}
"""For the control plane, which hands them on to builds."""
_USER = "postgres"
_READY_WITHIN_S = 30.0
_ASK_EVERY_S = 0.05


@dataclass(frozen=True, slots=True)
class StandIns:
    """Those of one cluster."""

    daemons: Daemons

    def ensure(self) -> Iterator[str]:
        """Starts what does not run; tells what it started. CannotRunHere without PostgreSQL.

        Whoever asks while another one starts them waits for that one.
        """
        with (self.daemons.layout.home / "stand-ins.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield from self._ensure()

    def forget(self) -> None:
        """Empties store and database: a new installation has another id and other tokens, so that
        files that one before it has left are not its own, and it cannot read keys of secrets."""
        self.daemons.end(_STORE, signal.SIGKILL)  # it keeps all in memory
        list(self.ensure())
        programs = _programs()
        _administer(programs / "dropdb", "--if-exists", "--force")
        if not _database_made(programs):
            raise TestClusterError(f"{_DATABASE}: {self.daemons.last_lines(_DATABASE)}")

    def remove(self) -> None:
        """Ends them, and removes what the database kept."""
        for name in (_STORE, _PACKAGES):
            self.daemons.end(name, signal.SIGKILL)
        self.daemons.end(_DATABASE, signal.SIGQUIT)  # killed, it would leave its shared memory
        with contextlib.suppress(KeyError):
            shutil.rmtree(_data(), ignore_errors=True)

    def _ensure(self) -> Iterator[str]:
        moto = str(REPOSITORY / ".venv/bin/moto_server")
        store = [moto, f"--host={HOST_ADDRESS}", f"--port={_STORE_PORT}"]
        if self.daemons.ensure(_STORE, store):
            self._await(_STORE, _bucket_made)
            yield "store started"
        python, here = str(REPOSITORY / ".venv/bin/python"), (HOST_ADDRESS, str(_PACKAGES_PORT))
        if self.daemons.ensure(_PACKAGES, [python, "-m", "tests.cluster.package_index", *here]):
            self._await(_PACKAGES, _answers)
            yield "package index started"
        programs = _programs()
        data = _data()
        if not data.exists():
            initdb = [f"--pgdata={data}", "--username=hotplate", "--auth=reject", "--no-sync"]
            _as_its_user(programs / "initdb", *initdb)
            networks = "".join(
                f"host all all {network} trust\n" for network in (POD_NETWORK, NODE_NETWORK)
            )
            (data / "pg_hba.conf").write_text(networks)
        settings = {
            "listen_addresses": HOST_ADDRESS,
            "port": _DATABASE_PORT,
            "unix_socket_directories": "",
            "fsync": "off",
        }
        changing = ["setpriv", f"--reuid={_USER}", f"--regid={_USER}", "--init-groups"]
        flags = [f"-c{key}={value}" for key, value in settings.items()]
        server = [*changing, str(programs / "postgres"), f"-D{data}", *flags]
        if self.daemons.ensure(_DATABASE, server):
            self._await(_DATABASE, lambda: _database_made(programs))
            yield "database started"

    def _await(self, name: str, is_ready: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _READY_WITHIN_S
        while not is_ready():
            if self.daemons.find(name) is None or time.monotonic() > deadline:
                raise TestClusterError(f"{name}: {self.daemons.last_lines(name)}")
            time.sleep(_ASK_EVERY_S)


def _bucket_made() -> bool:
    request = urllib.request.Request(f"{_STORE_ADDRESS}/{BUCKET}", method="PUT")
    try:
        urllib.request.urlopen(request, timeout=5).close()
    except urllib.error.URLError:
        return False
    return True


def _answers() -> bool:
    try:
        urllib.request.urlopen(f"{_PACKAGES_ADDRESS}/", timeout=5).close()
    except urllib.error.HTTPError:
        return True  # of a path that it does not have
    except urllib.error.URLError:
        return False
    return True


def _database_made(programs: Path) -> bool:
    done = _administer(programs / "createdb")
    return done.returncode == 0 or "already exists" in done.stderr


def _administer(program: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    """Runs one of the server's programs that make and remove databases, for ours."""
    address = [f"--host={HOST_ADDRESS}", f"--port={_DATABASE_PORT}", "--username=hotplate"]
    command = [str(program), *address, "--maintenance-db=postgres", *flags, "hotplate"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def lacks() -> str | None:
    """One sentence, or None where they can run."""
    try:
        _programs()
    except CannotRunHere as error:
        return str(error)
    return None


def _programs() -> Path:
    """Where PostgreSQL's are; Debian keeps them off the path."""
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    path = os.pathsep.join([os.environ.get("PATH", ""), *map(str, debian)])
    found = shutil.which("initdb", path=path)
    if found is None:
        raise CannotRunHere("PostgreSQL is not here; run apt-get install postgresql.")
    return Path(found).resolve().parent


def _data() -> Path:
    """In the home of the server's user, who may not be let into ours. KeyError if there is none."""
    return Path(pwd.getpwnam(_USER).pw_dir) / "hotplate-test-cluster"


def _as_its_user(program: Path, *arguments: str) -> None:
    done = subprocess.run(
        [program, *arguments], user=_USER, cwd="/", capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise TestClusterError(f"{program.name}: {done.stderr.strip()}")
