"""The file view's answers to the kernel: names, attributes and open files."""

from __future__ import annotations

import errno
import itertools
import queue
import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from hotplate.cache.file_view import fuse as wire
from hotplate.cache.file_view.fuse import FuseRequest, Op
from hotplate.cache.file_view.fuse_device import FuseDevice
from hotplate.cache.file_view.inodes import Inode, Inodes, InodeTree, listing
from hotplate.cache.file_view.open_files import OpenFiles
from hotplate.cache.manifest import Manifest

_NAME_VALID_S = 1
"""How long the kernel may cache a tree's name: a tree may be removed, while its content stays."""
_DIGEST = re.compile(rb"[0-9a-f]{64}")


class FileSystem:
    """Answers every request; one that takes long is parked, or done by another thread."""

    def __init__(
        self, device: FuseDevice, manifests: Path, send: Callable[[dict[str, Any]], None]
    ) -> None:
        self._device = device
        self._manifests = manifests
        self._names = Inodes()
        self._lock = threading.Lock()
        self.files = OpenFiles(device, send)
        self._send = send
        self._loading = ThreadPoolExecutor(1, "load")
        self._url_changes: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._handlers: dict[int, Callable[[FuseRequest], None]] = {
            Op.LOOKUP: self._lookup,
            Op.GETATTR: self._getattr,
            Op.READLINK: self._readlink,
            Op.OPEN: self._open,
            Op.READ: self._read,
            Op.STATFS: lambda request: device.reply(request.unique, wire.statistics()),
            Op.RELEASE: self._release,
            Op.INIT: self._init,
            Op.OPENDIR: self._opendir,
            Op.READDIR: self._readdir,
            Op.READDIRPLUS: self._readdir,
            Op.RELEASEDIR: lambda request: device.reply(request.unique),
            Op.DESTROY: lambda request: device.reply(request.unique),
            Op.FORGET: self._forget,
            Op.BATCH_FORGET: self._forget,
            Op.INTERRUPT: self._interrupt,
        }

    def serve(self) -> None:
        """Answers the kernel's requests until the mount has gone."""
        buffer = self._device.buffer()
        while (request := self._device.read(buffer)) is not None:
            handler = self._handlers.get(request.op)
            if handler is None:
                self._device.refuse(request.unique, errno.ENOSYS)
            else:
                handler(request)

    def _init(self, request: FuseRequest) -> None:
        data, self._device.passthrough = wire.greeting(request.body)
        self._device.reply(request.unique, data)
        self._send({"serving": True, "passthrough": self._device.passthrough})

    def _node(self, request: FuseRequest) -> Inode | None:
        """The node that a request is about; where it is gone, the request is refused here."""
        node = self._names.get(request.node)
        if node is None:
            self._device.refuse(request.unique, errno.ESTALE)
        return node

    def _lookup(self, request: FuseRequest) -> None:
        parent = self._node(request)
        if parent is None:
            return
        name = request.body.rstrip(b"\0")
        if parent is self._names.trees:
            self._loading.submit(self._lookup_tree, request.unique, name)
        elif parent is self._names.root and name == b"urls":
            self._loading.submit(self._lookup_urls, request.unique)
        elif parent.children is None:
            self._device.refuse(request.unique, errno.ENOTDIR)
        elif parent.tree is None and name not in parent.children:
            self._loading.submit(self._lookup_new, request.unique, parent.children, name)
        else:
            valid_s = wire.FOREVER_S if parent.tree else _NAME_VALID_S
            self._found(request.unique, parent.children.get(name), valid_s)

    def _found(self, unique: int, node: Inode | None, valid_s: int) -> None:
        if node is None:
            self._device.refuse(unique, errno.ENOENT)
            return
        with self._lock:
            self._names.looked_up(node)
        self._device.reply(unique, wire.entry(node.attributes, valid_s))

    def _lookup_tree(self, unique: int, name: bytes) -> None:
        tree = self._tree(name) if _DIGEST.fullmatch(name) else None
        self._found(unique, tree.root if tree else None, _NAME_VALID_S)

    def _lookup_urls(self, unique: int) -> None:
        self._update_urls()
        self._found(unique, self._names.urls, _NAME_VALID_S)

    def _lookup_new(self, unique: int, children: dict[bytes, Inode], name: bytes) -> None:
        """Looks up an unknown name, which may have been pulled a moment ago."""
        self._update_urls()
        self._found(unique, children.get(name), _NAME_VALID_S)

    def _update_urls(self) -> None:
        """Asks the agent which URLs were pulled or forgotten since the last time."""
        with self._lock:
            self._send({"urls": True})
        while not (changes := self._url_changes.get())["last"]:
            self._take(changes)
        self._take(changes)

    def _take(self, changes: dict[str, Any]) -> None:
        with self._lock:
            for url in changes["gone"]:
                self._names.drop_url(url)
            for url, size_bytes, key in changes["files"]:
                self._names.add_url(url, size_bytes, key)

    def receive(self, message: dict[str, Any], fd: int | None) -> None:
        """Takes a message of the agent."""
        if "files" in message:
            self._url_changes.put(message)
        else:
            self.files.receive(message, fd)

    def _tree(self, name: bytes) -> InodeTree | None:
        """The tree, if the agent keeps its manifest now. The manifest is read only once."""
        path = self._manifests / f"{name.decode()}.json"
        known = self._names.tree(name)
        try:
            if known is not None:
                path.stat()
                return known
            manifest = Manifest.from_bytes(path.read_bytes())
        except (OSError, ValueError, KeyError, TypeError):
            if known is not None:
                with self._lock:
                    self._names.drop(known)
            return None
        with self._lock:
            return self._names.add(name.decode(), manifest)

    def _getattr(self, request: FuseRequest) -> None:
        if (node := self._node(request)) is not None:
            self._device.reply(request.unique, wire.attributes(node.attributes))

    def _readlink(self, request: FuseRequest) -> None:
        if (node := self._node(request)) is not None:
            self._device.reply(request.unique, node.target)

    def _open(self, request: FuseRequest) -> None:
        node = self._node(request)
        if node is not None and node.content is not None:
            self.files.open(request.unique, node)
        elif node is not None:
            self._device.refuse(request.unique, errno.EISDIR)

    def _read(self, request: FuseRequest) -> None:
        self.files.read(request.unique, *wire.read_span(request.body))

    def _release(self, request: FuseRequest) -> None:
        self.files.release(wire.number_in(request.body))
        self._device.reply(request.unique)

    def _opendir(self, request: FuseRequest) -> None:
        node = self._node(request)
        if node is None:
            return
        if node.tree is None:
            self._loading.submit(self._open_changing, request.unique, node)
            return
        flags = wire.OPEN_CACHES_FOLDER | wire.OPEN_KEEPS_CACHE
        self._device.reply(request.unique, wire.opened(0, flags))

    def _open_changing(self, unique: int, node: Inode) -> None:
        """A listing shows what the agent keeps now."""
        if node is self._names.trees:
            for path in self._manifests.glob("*.json"):
                if _DIGEST.fullmatch(path.stem.encode()):
                    self._tree(path.stem.encode())
        elif node is not self._names.root:
            self._update_urls()
        self._device.reply(unique, wire.opened(0, 0))

    def _readdir(self, request: FuseRequest) -> None:
        node = self._node(request)
        if node is None or node.children is None:
            return
        _, position, length = wire.read_span(request.body)
        plus = request.op == Op.READDIRPLUS
        parts: list[bytes] = []
        used = 0
        with self._lock:
            names = itertools.islice(listing(node), position, None)
            for at, (name, child) in enumerate(names, position):
                mode = child.attributes.mode
                part = wire.directory_entry(child.number, name, mode, at + 1)
                looked_up = plus and name not in (b".", b"..")
                if plus:
                    valid_s = wire.FOREVER_S if node.tree else _NAME_VALID_S
                    head = wire.entry(child.attributes, valid_s) if looked_up else wire.UNASKED
                    part = head + part
                used += len(part)
                if used > length:
                    break
                parts.append(part)
                if looked_up:
                    self._names.looked_up(child)
        self._device.reply(request.unique, b"".join(parts))

    def _forget(self, request: FuseRequest) -> None:
        with self._lock:
            for number, times in wire.forgotten(request.op, request.node, request.body):
                self._names.forget(number, times)

    def _interrupt(self, request: FuseRequest) -> None:
        """Ends a parked request. Any other is over soon, or not here yet: the kernel asks again."""
        if not self.files.interrupt(wire.number_in(request.body)):
            self._device.refuse(request.unique, errno.EAGAIN)
