"""The files of a code space as the client sends them, checked, and the bento made of them; pure.

A code space's bento is never packed: the client registers its manifest and sends its files one by
one. What `bentoml build` would have written beside them is made here.
"""

from __future__ import annotations

import binascii
import hashlib
import json
from base64 import b64decode
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote_to_bytes

from hotplate.cache.manifest import Blob, ManifestEntry
from hotplate.cache.member_path import PathTree, clean_path
from hotplate.platform.errors import Invalid
from hotplate.platform.spec.fields import SHOWN_MAX, Fields

FILES_MAX = 100_000
"""Of one code space."""
BYTES_MAX = 2 << 30
"""All files of one code space together."""
BODY_MAX_BYTES = 192 << 20
"""A JSON body with files: the client sends about 64 MiB at a time, and a larger file alone."""
READY = ".project_ready"
"""The file that the client sends last: from then on there is something to run."""
REQUIREMENTS = "requirements.txt"
_GENERATED = frozenset({READY, "setup.sh", "post_setup.sh"})
"""What the client writes for its own server: the manifest's image says the same."""


@dataclass(frozen=True)
class SentFile:
    """One file of a request."""

    path: str
    content: bytes

    @property
    def md5(self) -> str:
        """As the client compares it."""
        return hashlib.md5(self.content, usedforsecurity=False).hexdigest()


@dataclass(frozen=True)
class CodeFile:
    """One file of a code space as it is kept."""

    path: str
    size_bytes: int
    md5: str
    chunks: tuple[str, ...]
    """Digests of its content in the blob store."""
    changed_at: float
    """Unix seconds."""


def sent_files(fields: Fields) -> list[SentFile]:
    """`{"files": [{"path", "b64_encoded_content"}]}`; of a path that is there twice, the last.

    Raises Invalid.
    """
    found: dict[str, SentFile] = {}
    for item in fields.items("files"):
        path = _path(item.at("path"), item.exact_text("path"))
        text = item.text("b64_encoded_content", "")
        try:
            content = b64decode(text, validate=True)
        except (binascii.Error, ValueError) as error:
            raise Invalid(f"{item.at('b64_encoded_content')}: it is not base64 ({error})") from None
        found[path] = SentFile(path, content)
    return list(found.values())


def named_paths(fields: Fields) -> list[str]:
    """`{"paths": [...]}`. Raises Invalid."""
    paths = []
    for index, value in enumerate(fields.values("paths")):
        at = f"{fields.at('paths')}[{index}]"
        if not isinstance(value, str):
            raise Invalid(f"{at}: it is not a string")
        paths.append(_path(at, value))
    return paths


def changed(
    kept: Iterable[CodeFile], put: Iterable[CodeFile], gone: Collection[str]
) -> list[CodeFile]:
    """The files after a change, by path. A path in `gone` may be a folder, with all below it.

    Raises Invalid for too many files, too many bytes, and a path that is a file and a folder.
    """
    files = {file.path: file for file in kept if not _is_gone(file.path, gone)}
    files |= {file.path: file for file in put}
    if len(files) > FILES_MAX:
        raise Invalid(
            f"files: the code space would have {len(files)} files, more than {FILES_MAX}; leave "
            "some out by 'exclude' in bentofile.yaml or by .bentoignore"
        )
    size_bytes = sum(file.size_bytes for file in files.values())
    if size_bytes > BYTES_MAX:
        raise Invalid(
            f"files: they would have {size_bytes} bytes together, more than {BYTES_MAX}; leave "
            "some out by 'exclude' in bentofile.yaml or by .bentoignore"
        )
    tree = PathTree()
    for path in sorted(files):
        try:
            tree.add(path, folder=False)
        except ValueError as error:
            raise Invalid(f"files: {path[:SHOWN_MAX]!r}: {error}") from None
    return [files[path] for path in sorted(files)]


def is_ready(files: Iterable[CodeFile]) -> bool:
    """Whether the client has sent all that there is to run."""
    return any(file.path == READY for file in files)


def tree_entries(files: Sequence[CodeFile], description: Blob) -> list[ManifestEntry]:
    """The bento's files: the author's below `src`, its requirements where an environment is made
    of them, and the `description` as bento.yaml."""
    entries = {"bento.yaml": ManifestEntry("bento.yaml", blob=description)}
    for file in files:
        if file.path in _GENERATED:
            continue
        own = f"src/{file.path}"
        path = "env/python/requirements.txt" if file.path == REQUIREMENTS else own
        blob = Blob(file.size_bytes, file.chunks)
        entries[path] = ManifestEntry(path, mtime=file.changed_at, blob=blob)
    folders = {"src"}
    for path in entries:
        parts = path.split("/")
        folders |= {"/".join(parts[:depth]) for depth in range(1, len(parts))}
    entries |= {path: ManifestEntry(path, 0o755) for path in folders}
    return [entries[path] for path in sorted(entries)]


def described(tag: str, manifest: Mapping[str, Any]) -> bytes:
    """The bento.yaml that `bentoml build` writes of what the client has registered: as JSON, which
    is YAML too."""
    name, _, version = tag.partition(":")
    return json.dumps(
        {
            "service": manifest.get("service"),
            "name": name,
            "version": version,
            "bentoml_version": manifest.get("bentoml_version"),
            "creation_time": "1970-01-01T00:00:00+00:00",
            "labels": {},
            "models": _models(manifest),
            "entry_service": manifest.get("entry_service") or "",
            "services": manifest.get("services") or [],
            "envs": manifest.get("envs") or [],
            "schema": manifest.get("schema") or {},
            "spec": manifest.get("spec") or 2,
            "image": manifest.get("image") or {},
        },
        sort_keys=True,
    ).encode()


def _models(manifest: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """As the services tell of them: the manifest's own list has their tags only."""
    found = {
        model["tag"]: model
        for service in manifest.get("services") or ()
        for model in service.get("models") or ()
        if isinstance(model, Mapping) and model.get("tag")
    }
    return list(found.values())


def _path(at: str, value: str) -> str:
    """Also what would leave the folder for whoever decodes `%2e%2e` is refused; once decoded, it
    may be encoded again."""
    try:
        raw = value.encode()
        while (decoded := unquote_to_bytes(raw)) != raw:
            clean_path(decoded, folder=False)
            raw = decoded
        return clean_path(value.encode(), folder=False)
    except ValueError as error:
        raise Invalid(f"{at}: {value[:SHOWN_MAX]!r}: {error}") from None


def _is_gone(path: str, gone: Collection[str]) -> bool:
    if path in gone:
        return True
    parts = path.split("/")
    return any("/".join(parts[:depth]) in gone for depth in range(1, len(parts)))
