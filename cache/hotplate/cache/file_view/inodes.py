"""The names of the file view: `trees/<manifest digest>/…`, each a node with a number.

A tree's nodes are made in one go from its manifest, so that a look-up is one access to a
dictionary. No I/O; callers hold a lock.
"""

from __future__ import annotations

import itertools
import os
import stat
from collections.abc import Iterator

from hotplate.cache.file_view.fuse import Attributes
from hotplate.cache.manifest import Blob, Manifest, ManifestEntry, for_all

_ENTERABLE = 0o555
"""The mode of every folder of a tree, whatever its manifest has."""
_FOLDER, _OWN_FOLDER = 0o755, 0o700


class BlobContent:
    """The bytes of files: a blob of a tree, or a file that was pulled."""

    __slots__ = ("path", "shared", "size_bytes", "tree")

    def __init__(self, tree: str, path: str, size_bytes: int, shared: bool) -> None:
        self.tree = tree
        self.path = path
        """What the agent is asked for: a path of the tree, or the key of a version."""
        self.size_bytes = size_bytes
        self.shared = shared
        """Whether several files lie in it."""


class Inode:
    """A file, folder or link, known to the kernel by its number."""

    __slots__ = ("attributes", "children", "content", "name", "parent", "start", "target", "tree")

    def __init__(self, name: bytes, attributes: Attributes, parent: Inode | None) -> None:
        self.name = name
        self.attributes = attributes
        self.parent = parent or self
        self.tree: InodeTree | None = None
        self.children: dict[bytes, Inode] | None = None
        """The nodes of a folder, by name."""
        self.content: BlobContent | None = None
        """The bytes that a file is part of; the file begins at `start`."""
        self.start = 0
        self.target = b""
        """The target of a link."""

    @property
    def number(self) -> int:
        return self.attributes.number


class InodeTree:
    """One manifest's nodes."""

    def __init__(self, name: str, root: Inode) -> None:
        self.name = name
        self.root = root
        self.numbers = range(0)
        self.lookups = 0
        """How many look-ups of its nodes the kernel has not forgotten."""
        self.held = True
        """Whether the agent still has it."""


class Inodes:
    """All nodes."""

    def __init__(self) -> None:
        self.owner = (os.getuid(), os.getgid())
        self._next = itertools.count(1)
        self._nodes: dict[int, Inode] = {}
        # Other users see only the folders in it that are mounted for them.
        self.root = self._folder(b"", None, _OWN_FOLDER, 0.0)
        self.trees = self._folder(b"trees", self.root, _FOLDER, 0.0)
        self.urls = self._folder(b"urls", self.root, _FOLDER, 0.0)
        self._versions: dict[str, str] = {}

    def get(self, number: int) -> Inode | None:
        return self._nodes.get(number)

    def tree(self, name: bytes) -> InodeTree | None:
        """A tree that was added and that the agent still has."""
        node = _children(self.trees).get(name)
        return node.tree if node is not None else None

    def add(self, name: str, manifest: Manifest) -> InodeTree:
        """Makes the nodes of a tree, unless it was added before."""
        known = self.tree(name.encode())
        if known is not None:
            return known
        root = self._folder(name.encode(), self.trees, _FOLDER, _newest(manifest))
        tree = root.tree = InodeTree(name, root)
        folders = {"": root}
        contents: dict[Blob, BlobContent] = {}
        for item in manifest.entries:
            self._add_entry(tree, folders, contents, item)
        tree.numbers = range(root.number, next(self._next))
        return tree

    def drop(self, tree: InodeTree) -> None:
        """The agent no longer has the tree; its nodes go once the kernel has forgotten them."""
        tree.held = False
        children = _children(self.trees)
        if children.get(tree.root.name) is tree.root:
            del children[tree.root.name]
        self._sweep(tree)

    def add_url(self, url: str, size_bytes: int, key: str) -> None:
        """Shows a file that was brought from a URL; a new version takes the place of the old.

        A file whose place is a folder by now, or below a file, is not shown.
        """
        if self._versions.get(url) == key:
            return
        folder = self.urls
        *above, name = url_path(url)
        for part in above:
            next_folder = _children(folder).get(part)
            if next_folder is None:
                next_folder = self._folder(part, folder, _FOLDER, 0.0)
            if next_folder.children is None:
                return
            folder = next_folder
        there = _children(folder).get(name)
        if there is None or there.content is not None:
            mode = stat.S_IFREG | 0o444
            node = self._node(name, folder, self._attributes(mode, size_bytes, 0.0))
            node.content = BlobContent("", key, size_bytes, shared=False)
            self._versions[url] = key

    def drop_url(self, url: str) -> None:
        """The agent has forgotten the URL; folders that become empty go too."""
        if self._versions.pop(url, None) is None:
            return
        folder = self.urls
        *above, name = url_path(url)
        for part in above:
            folder = _children(folder)[part]
        _children(folder).pop(name, None)
        while folder is not self.urls and not _children(folder):
            _children(folder.parent).pop(folder.name, None)
            folder = folder.parent

    def looked_up(self, node: Inode) -> None:
        """The kernel has looked the node up."""
        if node.tree is not None:
            node.tree.lookups += 1

    def forget(self, number: int, times: int) -> None:
        node = self._nodes.get(number)
        if node is not None and node.tree is not None:
            node.tree.lookups -= times
            self._sweep(node.tree)

    def __len__(self) -> int:
        return len(self._nodes)

    def _sweep(self, tree: InodeTree) -> None:
        if not tree.held and tree.lookups <= 0:
            for number in tree.numbers:
                self._nodes.pop(number, None)

    def _add_entry(
        self,
        tree: InodeTree,
        folders: dict[str, Inode],
        contents: dict[Blob, BlobContent],
        item: ManifestEntry,
    ) -> None:
        above, _, name = item.path.rpartition("/")
        parent = self._make_folders(tree, folders, above)
        if item.blob is None and item.link is None:
            made = folders.get(item.path)
            mode = _ENTERABLE
            if made is None:
                made = folders[item.path] = self._folder(name.encode(), parent, mode, item.mtime)
                made.tree = tree
            else:  # a file below it came before the folder itself
                made.attributes = self._attributes(stat.S_IFDIR | mode, 0, item.mtime, made.number)
            return
        node = self._node(name.encode(), parent, self._file_attributes(item))
        node.tree = tree
        node.target = (item.link or "").encode()
        if item.blob is not None:
            node.content = contents.get(item.blob)
            if node.content is None:
                node.content = contents[item.blob] = BlobContent(
                    tree.name, item.path, item.blob.size_bytes, item.part is not None
                )
            node.start = item.span[0]

    def _file_attributes(self, item: ManifestEntry) -> Attributes:
        if item.link is not None:
            size_bytes = len(item.link.encode())
            return self._attributes(stat.S_IFLNK | 0o777, size_bytes, item.mtime)
        mode = stat.S_IFREG | for_all(item.mode)
        return self._attributes(mode, item.size_bytes, item.mtime)

    def _make_folders(self, tree: InodeTree, folders: dict[str, Inode], path: str) -> Inode:
        """The folder at `path`, made if no entry has named it."""
        found = folders.get(path)
        if found is None:
            above, _, name = path.rpartition("/")
            parent = self._make_folders(tree, folders, above)
            found = folders[path] = self._folder(name.encode(), parent, _FOLDER & 0o555, 0.0)
            found.tree = tree
        return found

    def _folder(self, name: bytes, parent: Inode | None, mode: int, mtime: float) -> Inode:
        node = self._node(name, parent, self._attributes(stat.S_IFDIR | mode, 0, mtime))
        node.children = {}
        return node

    def _node(self, name: bytes, parent: Inode | None, attributes: Attributes) -> Inode:
        node = self._nodes[attributes.number] = Inode(name, attributes, parent)
        if parent is not None:
            _children(parent)[name] = node
        return node

    def _attributes(self, mode: int, size_bytes: int, mtime: float, number: int = 0) -> Attributes:
        return Attributes(number or next(self._next), mode, size_bytes, mtime, self.owner)


def listing(node: Inode) -> Iterator[tuple[bytes, Inode]]:
    """The entries of a folder, in an order that does not change while they are read."""
    yield b".", node
    yield b"..", node.parent
    yield from list(_children(node).items())


def url_path(url: str) -> list[bytes]:
    """The path of a URL's file below `urls`: the scheme, the host, and the URL's path."""
    scheme, _, rest = url.partition("://")
    host, slash, path = rest.partition("/")
    public = host.rpartition("@")[2] + slash + path  # no password is shown
    dots = {"": "", ".": "%2E", "..": "%2E%2E"}
    parts = [dots.get(part, part) for part in public.split("/")]
    return [part.encode() for part in [scheme, *parts] if part]


def _children(node: Inode) -> dict[bytes, Inode]:
    assert node.children is not None, f"{node.name!r} is no folder"
    return node.children


def _newest(manifest: Manifest) -> float:
    return max((item.mtime for item in manifest.entries), default=0.0)
