"""Open files of the view: blobs on loan from the agent, and the reads that wait for their bytes.

A read of bytes that have not arrived is parked, and its chunks are asked for first; the thread that
receives their arrival answers it. So no thread that serves the kernel ever waits for the network.

The kernel reads a file either through its own cache or from the agent's descriptor itself
("passthrough"), never both ways at once. So each open decides: whole and not open through the
cache → passed through.
"""

from __future__ import annotations

import errno
import itertools
import mmap
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from hotplate.cache.file_view.fuse import OPEN_KEEPS_CACHE, OPEN_PASSES_THROUGH, opened
from hotplate.cache.file_view.inodes import BlobContent, Inode
from hotplate.cache.file_view.lease import Lease, Read
from hotplate.cache.manifest import count_chunks

_IDLE_S = 5.0
"""A loan without a reader is given back to the agent after one or two times this long."""
_IDLE_LEASES = 64
"""How many loans may outlast their readers: a program that has read one file of a blob reads its
neighbours, and one that opens a whole file again need not wait for the agent."""

_ERRNO = {"unknown_manifest": errno.ENOENT, "no_space": errno.ENOSPC}


class KernelReplies(Protocol):
    """The part of the FUSE device that open files need. Thread-safe."""

    def reply(self, unique: int, *parts: bytes | memoryview) -> None: ...

    def refuse(self, unique: int, error: int) -> None: ...

    def back(self, fd: int) -> int:
        """Registers a descriptor to pass reads through to; 0 where that cannot be done."""

    def unback(self, backing: int) -> None: ...


@dataclass
class _Handle:
    node: Inode
    lease: Lease | None
    passed: bool


@dataclass
class _OpenCounts:
    """How often a file is open in each of the two counts."""

    cached: int = 0
    passed: int = 0
    backing: int = 0


class OpenFiles:
    """All open files. Thread-safe; the agent's messages come in through `receive`."""

    def __init__(self, kernel: KernelReplies, send: Callable[[dict[str, Any]], None]) -> None:
        self._kernel = kernel
        self._send = send
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._handle_numbers = itertools.count(1)
        self._leases: dict[BlobContent, Lease] = {}
        """The leases that new opens may use."""
        self._lent: dict[int, Lease] = {}
        """All leases, by number."""
        self._idle: OrderedDict[BlobContent, Lease] = OrderedDict()
        self._handles: dict[int, _Handle] = {}
        self._counts: dict[int, _OpenCounts] = {}
        self._parked: dict[int, Lease] = {}

    def open(self, unique: int, node: Inode) -> None:
        content = node.content
        assert content is not None
        ask = None
        with self._lock:
            lease = self._leases.get(content)
            if not node.attributes.size_bytes:
                answer = self._hand_out(node, None, passed=False)
            elif lease is not None and lease.fd >= 0:
                self._idle.pop(content, None)
                lease.aged = False
                answer = self._open_lent(node, lease)
            else:
                answer = b""
                if lease is None:
                    lease = ask = self._leases[content] = Lease(next(self._numbers), content)
                    self._lent[lease.number] = lease
                lease.opening[unique] = node
                self._parked[unique] = lease
        if answer:
            self._kernel.reply(unique, answer)
        elif ask is not None:
            self._send({"open": ask.number, "tree": content.tree, "path": content.path})

    def read(self, unique: int, number: int, offset: int, length: int) -> None:
        handle = self._handles.get(number)
        if handle is None:
            self._kernel.refuse(unique, errno.EBADF)
            return
        node, lease = handle.node, handle.lease
        start = node.start + offset
        stop = node.start + min(offset + length, node.attributes.size_bytes)
        if lease is None or start >= stop:
            self._kernel.reply(unique)
            return
        if lease.missing:
            with self._lock:
                lacking = lease.lacking(start, stop)
                wanted = sorted(lacking - lease.asked)
                if lacking and not lease.failed:
                    lease.asked.update(lacking)
                    lease.reads[unique] = Read(start, stop, lacking)
                    self._parked[unique] = lease
            if lacking:
                if lease.failed:
                    self._kernel.refuse(unique, errno.EIO)
                elif wanted:
                    self._send({"lease": lease.number, "want": wanted})
                return
        self._kernel.reply(unique, lease.view[start:stop])

    def release(self, number: int) -> None:
        with self._lock:
            handle = self._handles.pop(number, None)
            if handle is None:
                return
            counts = self._counts[handle.node.number]
            backing = 0
            if handle.passed:
                counts.passed -= 1
                if not counts.passed:
                    backing, counts.backing = counts.backing, 0
            else:
                counts.cached -= 1
            if not counts.passed and not counts.cached:
                del self._counts[handle.node.number]
            ended = []
            if handle.lease is not None:
                handle.lease.handles -= 1
                ended = self._end_unused(handle.lease)
        if backing:
            self._kernel.unback(backing)
        self._close_ended(ended)

    def interrupt(self, unique: int) -> bool:
        """Ends a request that is parked; whether it was."""
        with self._lock:
            lease = self._parked.pop(unique, None)
            if lease is None:
                return False
            lease.opening.pop(unique, None)
            lease.reads.pop(unique, None)
            ended = self._end_unused(lease)
        self._kernel.refuse(unique, errno.EINTR)
        self._close_ended(ended)
        return True

    def keep_ageing(self) -> None:
        never = threading.Event()
        while not never.wait(_IDLE_S):
            self.age()

    def age(self) -> None:
        """Ends the loans that nobody has used since this was last called."""
        with self._lock:
            ended = [lease for lease in self._idle.values() if lease.aged]
            for lease in ended:
                del self._idle[lease.content]
                self._end(lease)
            for lease in self._idle.values():
                lease.aged = True
        self._close_ended(ended)

    def receive(self, message: dict[str, Any], fd: int | None) -> None:
        """Takes a message of the agent about a lease; `fd` comes with the first one."""
        lease = self._lent.get(message["lease"])
        if lease is None:  # it was given up before this came
            if fd is not None:
                os.close(fd)
        elif "error" in message:
            self._fail(lease, _ERRNO.get(message["code"], errno.EIO))
        elif fd is not None:
            try:
                self._begin(lease, fd, message)
            except (OSError, ValueError):  # it cannot be mapped, or is another file
                os.close(fd)
                self._fail(lease, errno.EIO)
        else:
            self._arrived(lease, message["done"])

    def _begin(self, lease: Lease, fd: int, message: dict[str, Any]) -> None:
        if message["size"] != (size_bytes := lease.content.size_bytes):
            raise ValueError(f"{lease.content.path} has {message['size']} bytes by now")
        missing = set(range(count_chunks(size_bytes)))
        missing.difference_update(missing if message["complete"] else message["done"])
        view = memoryview(mmap.mmap(fd, size_bytes, mmap.MAP_SHARED, mmap.PROT_READ))
        with self._lock:
            lease.view, lease.missing, lease.fd = view, missing, fd
            # A file that was lent from memory is better lent from disk next time.
            lease.stays = lease.content.shared or not missing
            answers = [
                (unique, self._open_lent(node, lease)) for unique, node in lease.opening.items()
            ]
            for unique in lease.opening:
                del self._parked[unique]
            lease.opening.clear()
        for unique, answer in answers:
            self._kernel.reply(unique, answer)

    def _arrived(self, lease: Lease, chunks: Iterable[int]) -> None:
        with self._lock:
            lease.missing.difference_update(chunks)
            ready = [
                (unique, read)
                for unique, read in lease.reads.items()
                if read.lacking.isdisjoint(lease.missing)
            ]
            for unique, _ in ready:
                del lease.reads[unique], self._parked[unique]
        for unique, read in ready:
            self._kernel.reply(unique, lease.view[read.start : read.stop])

    def _fail(self, lease: Lease, error: int) -> None:
        with self._lock:
            lease.failed = True
            if self._leases.get(lease.content) is lease:
                del self._leases[lease.content]  # the next open tries again
            self._idle.pop(lease.content, None)
            waiting = [*lease.opening, *lease.reads]
            reading = set(lease.reads)
            lease.opening.clear()
            lease.reads.clear()
            for unique in waiting:
                del self._parked[unique]
            ended = self._end_unused(lease)
        for unique in waiting:
            self._kernel.refuse(unique, errno.EIO if unique in reading else error)
        self._close_ended(ended)

    def _open_lent(self, node: Inode, lease: Lease) -> bytes:
        counts = self._counts.setdefault(node.number, _OpenCounts())
        whole = not lease.content.shared and not lease.missing
        if whole and not counts.cached and not counts.passed:
            counts.backing = self._kernel.back(lease.fd)
        return self._hand_out(node, lease, passed=bool(counts.backing))

    def _hand_out(self, node: Inode, lease: Lease | None, *, passed: bool) -> bytes:
        counts = self._counts.setdefault(node.number, _OpenCounts())
        number = next(self._handle_numbers)
        self._handles[number] = _Handle(node, lease, passed)
        if lease is not None:
            lease.handles += 1
        if passed:
            counts.passed += 1
            return opened(number, OPEN_PASSES_THROUGH, counts.backing)
        counts.cached += 1
        return opened(number, OPEN_KEEPS_CACHE)

    def _end_unused(self, lease: Lease) -> list[Lease]:
        """The leases that end now that this one has lost a user."""
        if lease.handles or lease.opening or lease.number not in self._lent:
            return []
        if lease.stays and not lease.failed:
            self._idle[lease.content] = lease
            if len(self._idle) <= _IDLE_LEASES:
                return []
            _, lease = self._idle.popitem(last=False)
        self._end(lease)
        return [lease]

    def _end(self, lease: Lease) -> None:
        if self._leases.get(lease.content) is lease:
            del self._leases[lease.content]
        del self._lent[lease.number]

    def _close_ended(self, leases: Iterable[Lease]) -> None:
        for lease in leases:
            self._send({"close": lease.number})
            if lease.fd >= 0:
                os.close(lease.fd)
