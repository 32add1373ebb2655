from __future__ import annotations

import os
import stat

import pytest

from hotplate.cache.file_view.inodes import Inode, Inodes, listing, url_path
from hotplate.cache.manifest import Manifest, ManifestEntry
from tests.support.cache.fakes import blob_of

BLOB = blob_of(b"content")
MANIFEST = Manifest(
    (
        ManifestEntry("a/b/file", 0o640, 1e9, BLOB),
        ManifestEntry("a", 0o700, 1.5e9),
        ManifestEntry("a/part", 0o755, 1e9, BLOB, part=(2, 3)),
        ManifestEntry("a/link", link="b"),
    )
)


def at(node: Inode, path: str) -> Inode:
    for name in path.split("/"):
        assert node.children is not None
        node = node.children[name.encode()]
    return node


def test_a_manifest_is_found_by_its_names() -> None:
    root = Inodes().add("tree", MANIFEST).root
    assert [name for name, _ in listing(at(root, "a"))] == [b".", b"..", b"b", b"part", b"link"]
    file, part, link = at(root, "a/b/file"), at(root, "a/part"), at(root, "a/link")
    assert file.attributes.mode == stat.S_IFREG | 0o444
    assert (file.content, file.start, file.attributes.size_bytes) == (part.content, 0, 7)
    assert (part.start, part.attributes.size_bytes, part.attributes.mode & 0o777) == (2, 3, 0o555)
    assert (link.target, link.attributes.size_bytes) == (b"b", 1)
    assert (at(root, "a").attributes.mode, at(root, "a").attributes.mtime) == (
        stat.S_IFDIR | 0o555,
        1.5e9,
    )


def test_only_the_agents_own_user_enters_the_view() -> None:
    names = Inodes()
    assert names.root.attributes.mode == stat.S_IFDIR | 0o700
    assert names.root.attributes.owner == (os.getuid(), os.getgid())


def test_a_tree_stays_until_the_kernel_has_forgotten_it() -> None:
    names = Inodes()
    before = len(names)
    tree = names.add("tree", MANIFEST)
    assert names.add("tree", MANIFEST) is tree
    file = at(tree.root, "a/b/file")
    for node in (tree.root, file, file):
        names.looked_up(node)
    names.drop(tree)
    assert names.tree(b"tree") is None and names.get(file.number) is file
    names.forget(file.number, 2)
    assert names.get(file.number) is file
    names.forget(tree.root.number, 1)
    assert len(names) == before
    assert names.add("tree", MANIFEST).root.number != tree.root.number


def test_a_new_version_at_a_url_is_another_file() -> None:
    names = Inodes()
    for url, key in (("http://h/a/b", "1"), ("http://h/a/c", "1"), ("http://h/a/b/below", "1")):
        names.add_url(url, 5, key)
    old = at(names.urls, "http/h/a/b")
    names.add_url("http://h/a/b", 5, "1")
    assert at(names.urls, "http/h/a/b") is old
    names.add_url("http://h/a/b", 5, "2")
    assert at(names.urls, "http/h/a/b").number != old.number
    assert names.get(old.number) is old  # somebody may have it open
    names.drop_url("http://h/a/b")
    assert list(at(names.urls, "http/h/a").children or ()) == [b"c"]
    names.drop_url("http://h/a/c")
    names.drop_url("http://h/a/c")
    assert not names.urls.children


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("s3://bucket/a/b.bin", "s3/bucket/a/b.bin"),
        ("https://me:secret@host:80/x?version=1", "https/host:80/x?version=1"),
        ("file:///tmp//x", "file/tmp/x"),
        ("http://host/../x", "http/host/%2E%2E/x"),
    ],
)
def test_a_url_has_a_place_below_its_scheme_and_host(url: str, path: str) -> None:
    assert b"/".join(url_path(url)).decode() == path
