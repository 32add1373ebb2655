"""The gateways of one machine that serve the same routes, and which of them owns what.

They meet in a folder. Every lock in it is the kernel's (`flock`), so it ends with its process,
however that ends:

    <id>.gateway            locked by a gateway while it takes part; its content is what it serves
    <id>.sock, <id>.hand    where it takes requests, and listening sockets, from the others
    <id>.keep               where it takes connections that are to outlive them
    <deployment>.owner      locked by the deployment's owner, whose id is its content
    <deployment>.<id>.slots locked by a gateway that owns it, or whose requests still run

A deployment has one owner, which has its queue and its slots; the others pass their callers'
requests on to it.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from hotplate.serving.gateway.fleet.members import (
    RETIRES,
    FleetMembers,
    OwnerLock,
    file_name,
    rendezvous_owner,
)

MEMBER = ".gateway"
OWNER = ".owner"
SLOTS = ".slots"
SOCKET = ".sock"
HANDOVER = ".hand"
BACKUP = ".keep"


class FileLock(OwnerLock):
    """The ownership of a deployment, until it is released or the process ends."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def release(self) -> None:
        os.ftruncate(self._descriptor, 0)
        os.close(self._descriptor)


class Fleet(FleetMembers):
    """One gateway's membership among its peers. Raises OSError where the folder cannot be used."""

    def __init__(self, folder: Path, started_at: float, seat: str = "", secret: str = "") -> None:
        """`started_at` in seconds of the machine's monotonic clock: ids sort by age. `seat`: a
        gateway replaces an earlier one with the same seat; empty = it replaces none. `secret` is
        shared by the fleet's gateways; one with another secret does not belong to it."""
        super().__init__(f"{int(started_at * 1000):015d}-{os.getpid()}", folder, secret)
        self._folder_descriptor = -1
        """The open folder, by which a socket has a name that is short enough (`sun_path`)."""
        self._seat = frozenset({f"seat:{file_name(seat)}"} if seat else ())
        self._member = -1
        self._seen_at_ns = -1
        """When the folder had last changed as it was read; -1 = that is not certain."""

    @property
    def name(self) -> str:
        return str(self.folder)

    @property
    def socket(self) -> Path:
        return self.socket_of(self.id)

    def address_of(self, gateway: str) -> str:
        return str(self.socket_of(gateway))

    def socket_of(self, gateway: str) -> Path:
        return self._short(gateway + SOCKET)

    def handover_socket_of(self, gateway: str) -> Path:
        return self._short(gateway + HANDOVER)

    def backup_socket_of(self, gateway: str) -> Path:
        return self._short(gateway + BACKUP)

    @property
    def in_seat(self) -> Sequence[str]:
        """The others with this gateway's seat that do not retire."""
        return [member for member in self.staying if self._seat & self._serving[member]]

    def join(self) -> None:
        """Joins the fleet; the private socket must be listened on already."""
        draft = self.folder / f"{self.id}.new"
        self._member = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._member, fcntl.LOCK_EX)
        self._write(self._seat)
        draft.rename(
            self.folder / (self.id + MEMBER)
        )  # others see it with its lock and content only

    def leave(self) -> None:
        """Leaves the fleet, and releases what it owns. The last gateway leaves only the files that
        say which slots may still be taken."""
        if self._member >= 0:
            (self.folder / (self.id + MEMBER)).unlink(missing_ok=True)
            os.close(self._member)
            self._member = -1
        if not self.look():
            for path in self.folder.glob("*" + OWNER):
                path.unlink(missing_ok=True)
            with suppress(OSError):  # another gateway joins, or slots are taken
                self.folder.rmdir()
        if self._folder_descriptor >= 0:
            os.close(self._folder_descriptor)
            self._folder_descriptor = -1

    def serve(self, deployments: Iterable[str]) -> None:
        """Publishes what this gateway may own."""
        self._publish(self._seat | frozenset(map(file_name, deployments)))

    def retire(self) -> None:
        """Publishes that this gateway no longer owns anything."""
        self._publish(frozenset({RETIRES}))

    def look(self) -> Sequence[str]:
        """Checks which gateways live and what they serve; returns the others, oldest first. A
        gateway without peers sees by the folder's time alone that none has joined."""
        if not self._serving and self._changed_at_ns() == self._seen_at_ns:
            return ()
        self._seen_at_ns = self._changed_at_ns(settled=True)
        with os.scandir(self.folder) as entries:
            names = [entry.name for entry in entries if entry.name.endswith(MEMBER)]
        serving: dict[str, frozenset[str]] = {}
        for member in sorted(name.removesuffix(MEMBER) for name in names):
            if member != self.id and self.lives(member):
                with suppress(OSError):
                    content = (self.folder / (member + MEMBER)).read_text()
                    published, _, signature = content.rpartition("\n")
                    if self.proof.verifies(signature, member, published):
                        serving[member] = frozenset(published.split())
                    elif member in self._serving:  # it is just being written
                        serving[member] = self._serving[member]
        if serving != self._serving:
            self._serving = serving
            self.changes += 1
        return self.peers

    def _changed_at_ns(self, *, settled: bool = False) -> int:
        """When a name in the folder last changed. With `settled`, -1 if a change right now would
        not show, because the kernel's clock has a resolution of milliseconds."""
        now_ns = -1
        if settled and self._member >= 0:
            os.utime(self._member)
            now_ns = os.fstat(self._member).st_mtime_ns
        at_ns = self.folder.stat().st_mtime_ns
        return -1 if settled and at_ns >= now_ns else at_ns

    def next_owner(self, deployment: str) -> str:
        name = file_name(deployment)
        members = [member for member, served in self._serving.items() if name in served]
        return rendezvous_owner(deployment, members)

    def lock_owner(self, deployment: str) -> OwnerLock | None:
        """The ownership, if no gateway has it."""
        path = self.folder / (file_name(deployment) + OWNER)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            its_file = path.stat().st_ino == os.fstat(descriptor).st_ino
        except (BlockingIOError, FileNotFoundError):
            its_file = False
        if not its_file:  # it is another's, or was removed with the last one that served it
            os.close(descriptor)
            return None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, self.id.encode(), 0)
        return FileLock(descriptor)

    def owner(self, deployment: str) -> str:
        """The gateway that claims the ownership, which may have ended; empty = none does."""
        try:
            published = (self.folder / (file_name(deployment) + OWNER)).read_text()
        except OSError:
            return ""
        return published if published != self.id else ""

    def _short(self, name: str) -> Path:
        """A short path of a file in the folder, valid in this process."""
        if self._folder_descriptor < 0:
            self._folder_descriptor = os.open(
                self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
            )
        return Path(f"/proc/self/fd/{self._folder_descriptor}/{name}")

    def lives(self, gateway: str) -> bool:
        """Whether the gateway's process lives; removes the files of a dead one."""
        path = self.folder / (gateway + MEMBER)
        if is_held(path):
            return True
        for remaining in (
            path,
            self.socket_of(gateway),
            self.handover_socket_of(gateway),
            self.backup_socket_of(gateway),
        ):
            remaining.unlink(missing_ok=True)
        return False

    def _publish(self, own: frozenset[str]) -> None:
        if own != self._own:
            self._write(own)

    def _write(self, own: frozenset[str]) -> None:
        self._own = own
        self.changes += 1
        published = "\n".join(sorted(own))
        content = f"{published}\n{self.proof.sign(self.id, published)}".encode()
        os.pwrite(self._member, content, 0)
        os.ftruncate(self._member, len(content))


def process_of(gateway: str) -> int:
    """The id of the gateway's process."""
    return int(gateway.rpartition("-")[2])


def is_held(path: Path) -> bool:
    """Whether a living process holds the file's lock."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(descriptor)
