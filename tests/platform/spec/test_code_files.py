"""The files of a code space, before they are kept."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest

from hotplate.cache.manifest import Blob
from hotplate.platform.errors import Invalid
from hotplate.platform.spec import code_files
from hotplate.platform.spec.code_files import (
    FILES_MAX,
    READY,
    CodeFile,
    changed,
    is_ready,
    named_paths,
    sent_files,
    tree_entries,
)
from hotplate.platform.spec.fields import Fields


def sent(path: Any, content: str = b64encode(b"x").decode()) -> dict[str, Any]:
    return {"path": path, "b64_encoded_content": content}


def kept(path: str, size_bytes: int = 1) -> CodeFile:
    return CodeFile(path, size_bytes, "", (), 0.0)


def paths(files: list[CodeFile]) -> list[str]:
    return [file.path for file in files]


@pytest.mark.parametrize(
    "path",
    [
        *("../up", "a/../../up", "/etc/passwd", "a//b", ".", "", "a\x00b", "a\\b", "x" * 256),
        *("a/" * 70, "%2e%2e/up", "a/%2E%2e%2fup", "%252e%252e/up", "%2fetc/passwd", "a%00b"),
        "\ud800",
    ],
)
def test_a_path_that_leaves_the_folder_or_reads_in_two_ways_is_refused(path: str) -> None:
    with pytest.raises(Invalid, match=r"files\[0\].path"):
        sent_files(Fields({"files": [sent(path)]}))
    if path:
        with pytest.raises(Invalid, match=r"paths\[0\]"):
            named_paths(Fields({"paths": [path]}))


@pytest.mark.parametrize("path", ["100%.txt", "a%20b.py", "%zz", "..hidden", "a%2fb"])
def test_a_name_with_a_percent_sign_is_its_authors(path: str) -> None:
    assert [file.path for file in sent_files(Fields({"files": [sent(path)]}))] == [path]


def test_what_is_no_base64_is_refused_and_an_empty_file_is_none_of_that() -> None:
    with pytest.raises(Invalid, match="b64_encoded_content"):
        sent_files(Fields({"files": [sent("a", "n o")]}))
    (file,) = sent_files(Fields({"files": [sent(READY, "")]}))
    assert (file.content, file.md5) == (b"", "d41d8cd98f00b204e9800998ecf8427e")


def test_the_last_of_one_path_counts() -> None:
    files = [sent("a", b64encode(text).decode()) for text in (b"old", b"new")]
    assert [file.content for file in sent_files(Fields({"files": files}))] == [b"new"]


def test_a_change_replaces_adds_and_removes_files_and_folders() -> None:
    before = [kept("a.py"), kept("lib/b.py"), kept("lib/c/d.py"), kept("library.py")]
    after = changed(before, [kept("a.py", 7), kept("e.py")], ["lib", "missing"])
    assert paths(after) == ["a.py", "e.py", "library.py"]
    assert after[0].size_bytes == 7


def test_a_file_is_no_folder() -> None:
    with pytest.raises(Invalid, match="a file and a folder"):
        changed([kept("a")], [kept("a/b")], [])
    assert paths(changed([kept("a")], [kept("a/b")], ["a"])) == ["a/b"]


def test_one_file_too_many_is_refused() -> None:
    most = [kept(str(number)) for number in range(FILES_MAX)]
    assert len(changed(most, [kept("0")], [])) == FILES_MAX
    with pytest.raises(Invalid, match="100001 files, more than 100000"):
        changed(most, [kept("one more")], [])


def test_one_byte_too_many_is_refused() -> None:
    half = kept("a", code_files.BYTES_MAX // 2)
    assert changed([half], [kept("b", code_files.BYTES_MAX // 2)], [])
    with pytest.raises(Invalid, match="bytes together"):
        changed([half], [kept("b", code_files.BYTES_MAX // 2 + 1)], [])


def test_a_code_space_is_ready_once_its_client_says_so() -> None:
    assert not is_ready([kept("service.py")])
    assert is_ready([kept("service.py"), kept(READY)])


def test_the_bento_has_the_authors_files_below_src_and_nothing_of_the_clients() -> None:
    files = [kept(path) for path in (READY, "lib/a.py", "requirements.txt", "service.py")]
    files += [kept("setup.sh"), kept("post_setup.sh"), kept("bento.yaml")]
    entries = tree_entries(files, Blob(0, ()))
    assert [entry.path for entry in entries] == [
        "bento.yaml",
        "env",
        "env/python",
        "env/python/requirements.txt",
        "src",
        "src/bento.yaml",
        "src/lib",
        "src/lib/a.py",
        "src/service.py",
    ]
    assert [entry.path for entry in entries if entry.is_folder] == [
        "env",
        "env/python",
        "src",
        "src/lib",
    ]
