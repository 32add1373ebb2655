"""The gateways of one machine that serve the same routes, and which of them owns what.

They meet in a folder. Every lock in it is the kernel's (`flock`), so it ends with the process that
holds it, however that ends:

    <id>.gateway            held by a gateway while it takes part; in it stands what it serves
    <id>.sock, <id>.hand    where it takes requests, and listening sockets, from the others
    <id>.keep               where it takes what is to outlive them
    <deployment>.owner      held by the deployment's owner, whose id is in it
    <deployment>.<id>.slots held by a gateway that owns it, or has requests of it running still

A deployment has one owner, which has its queue and its slots; the others pass their callers'
requests on to it. Which one it should be is decided by rendezvous hashing over those that live and
serve it: a newcomer gets its share, and the share of one that is gone goes to all.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

from hotplate.serving.gateway.sockets.proof import Proof

MEMBER = ".gateway"
OWNER = ".owner"
SLOTS = ".slots"
SOCKET = ".sock"
HAND = ".hand"
KEEP = ".keep"
RETIRES = "retires"
"""Stands in a gateway's file in place of what it serves."""


class OwnerLock:
    """A deployment that is owned, until it is released or the process ends."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def release(self) -> None:
        os.ftruncate(self._descriptor, 0)
        os.close(self._descriptor)


class Fleet:
    """One gateway's place among its peers. Raises OSError where the folder cannot be used."""

    def __init__(self, folder: Path, started_at: float, seat: str = "", secret: str = "") -> None:
        """`started_at` in seconds of the machine's monotonic clock: ids sort by age. `seat`: one
        that starts in the seat of another replaces it; empty = it replaces nobody.
        `secret` is what the gateways of the fleet have in common: who has another is none."""
        self.folder = folder
        self.proof = Proof(secret)
        self._here = -1
        """The folder, open: by it a socket has a name that is short enough (`sun_path`)."""
        self._seat = frozenset({f"seat:{file_name(seat)}"} if seat else ())
        self.id = f"{int(started_at * 1000):015d}-{os.getpid()}"
        self._serving: Mapping[str, frozenset[str]] = {}
        """The others that live, oldest first, and what they serve, as `look` saw them last."""
        self.changes = 0
        """How often the answer to who lives and serves what has become another."""
        self._own: frozenset[str] = frozenset()
        self._member = -1
        self._seen_at_ns = -1
        """When the folder had changed last, as it was looked through; -1 = not known for sure."""

    @property
    def peers(self) -> Sequence[str]:
        """The others that live, oldest first."""
        return list(self._serving)

    @property
    def socket(self) -> Path:
        return self.socket_of(self.id)

    def socket_of(self, gateway: str) -> Path:
        return self._short(gateway + SOCKET)

    def hand_of(self, gateway: str) -> Path:
        return self._short(gateway + HAND)

    def keep_of(self, gateway: str) -> Path:
        return self._short(gateway + KEEP)

    @property
    def staying(self) -> Sequence[str]:
        """The others that do not retire, oldest first."""
        return [member for member, said in self._serving.items() if RETIRES not in said]

    @property
    def in_seat(self) -> Sequence[str]:
        """The others that have this gateway's seat, and do not retire."""
        return [member for member in self.staying if self._seat & self._serving[member]]

    def join(self) -> None:
        """Takes part from now on; the private socket is to be listened on already."""
        draft = self.folder / f"{self.id}.new"
        self._member = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._member, fcntl.LOCK_EX)
        self._write(self._seat)
        draft.rename(self.folder / (self.id + MEMBER))  # nobody sees it without lock and content

    def leave(self) -> None:
        """Is counted no more; what it owns is released. The last one leaves nothing behind, but
        what says of slots that may still be taken."""
        if self._member >= 0:
            (self.folder / (self.id + MEMBER)).unlink(missing_ok=True)
            os.close(self._member)
            self._member = -1
        if not self.look():
            for path in self.folder.glob("*" + OWNER):
                path.unlink(missing_ok=True)
            with suppress(OSError):  # somebody else comes, or slots are taken
                self.folder.rmdir()
        if self._here >= 0:
            os.close(self._here)
            self._here = -1

    def serve(self, deployments: Iterable[str]) -> None:
        """Tells the others what this gateway may own."""
        self._say(self._seat | frozenset(map(file_name, deployments)))

    def retire(self) -> None:
        """Tells the others that this gateway owns nothing any more."""
        self._say(frozenset({RETIRES}))

    def look(self) -> Sequence[str]:
        """Looks who lives and what they serve; the others, oldest first.

        Who is alone sees from the folder's time alone that nobody has come.
        """
        if not self._serving and self._changed_at_ns() == self._seen_at_ns:
            return ()
        self._seen_at_ns = self._changed_at_ns(settled=True)
        with os.scandir(self.folder) as entries:
            names = [entry.name for entry in entries if entry.name.endswith(MEMBER)]
        serving: dict[str, frozenset[str]] = {}
        for member in sorted(name.removesuffix(MEMBER) for name in names):
            if member != self.id and self.lives(member):
                with suppress(OSError):
                    told = (self.folder / (member + MEMBER)).read_text()
                    said, _, seal = told.rpartition("\n")
                    if self.proof.fits(seal, member, said):
                        serving[member] = frozenset(said.split())
                    elif member in self._serving:  # it is just being written
                        serving[member] = self._serving[member]
        if serving != self._serving:
            self._serving = serving
            self.changes += 1
        return self.peers

    def _changed_at_ns(self, *, settled: bool = False) -> int:
        """When a name in the folder changed last; if it is to be `settled`, -1 where one that
        changes now would not show: the kernel's clock goes by milliseconds."""
        now_ns = -1
        if settled and self._member >= 0:
            os.utime(self._member)
            now_ns = os.fstat(self._member).st_mtime_ns
        at_ns = self.folder.stat().st_mtime_ns
        return -1 if settled and at_ns >= now_ns else at_ns

    def rightful_owner(self, deployment: str) -> str:
        """Which gateway should own it, of those that serve it; empty = none does."""
        name = file_name(deployment)
        members = [member for member, served in self._serving.items() if name in served]
        if name in self._own:
            members.append(self.id)
        return chosen_owner(deployment, members)

    def next_owner(self, deployment: str) -> str:
        """The same if this gateway were gone."""
        name = file_name(deployment)
        members = [member for member, served in self._serving.items() if name in served]
        return chosen_owner(deployment, members)

    def lock_owner(self, deployment: str) -> OwnerLock | None:
        """Ownership, if nobody has it."""
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
        return OwnerLock(descriptor)

    def owner(self, deployment: str) -> str:
        """Which gateway says that it owns it; it may have ended. Empty = none does."""
        try:
            said = (self.folder / (file_name(deployment) + OWNER)).read_text()
        except OSError:
            return ""
        return said if said != self.id else ""

    def _short(self, name: str) -> Path:
        """A name for a file of the folder, good in this process."""
        if self._here < 0:
            self._here = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        return Path(f"/proc/self/fd/{self._here}/{name}")

    def lives(self, gateway: str) -> bool:
        """Whether the gateway's process does; what a dead one has left is removed."""
        path = self.folder / (gateway + MEMBER)
        if is_held(path):
            return True
        for left in (path, self.socket_of(gateway), self.hand_of(gateway), self.keep_of(gateway)):
            left.unlink(missing_ok=True)
        return False

    def _say(self, own: frozenset[str]) -> None:
        if own != self._own:
            self._write(own)

    def _write(self, own: frozenset[str]) -> None:
        self._own = own
        self.changes += 1
        said = "\n".join(sorted(own))
        content = f"{said}\n{self.proof.seal(self.id, said)}".encode()
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


def file_name(text: str) -> str:
    """A name of fixed length for what may have any characters."""
    return blake2b(text.encode(), digest_size=12).hexdigest()


def chosen_owner(deployment: str, gateways: Iterable[str]) -> str:
    """Which of them is to own it (rendezvous hashing); empty = there are none."""

    def weight(gateway: str) -> bytes:
        return blake2b(f"{gateway}\0{deployment}".encode(), digest_size=8).digest()

    return max(gateways, key=weight, default="")
