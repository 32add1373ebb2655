"""What determines the Python environment of a bento, and the digest that names it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from blake3 import blake3

from hotplate.serving.replica.environments.interpreter import is_version
from hotplate.serving.replica.errors import EnvironmentFailed
from hotplate.serving.replica.secret_values import SecretSet

SPEC_VERSION = "2"
"""Raised when the build changes, so that older environments are not used for it."""
REQUIREMENTS = "env/python/requirements.txt"
WHEELS = "src/wheels/"
"""Wheels of the bento's own."""
REQUIREMENTS_BYTES = 16 << 20
"""A lock of a thousand packages with all their digests is about one MiB."""

_COMMENT = re.compile(r"(^|\s)#.*$")
_OTHER_MACHINES_FILE = re.compile(r"^(-e\s+|--editable[\s=]+)?/|(^|[\s@=])file:")
_NEEDS_SOURCES = re.compile(r"^(\.(?!/wheels/)|-e\b|--editable\b|-r\b|--requirement\b|-c\b)")


@dataclass(frozen=True)
class EnvironmentSpec:
    """One environment. Bentos with the same digest share it."""

    digest: str
    bento: Path
    python_version: str
    post_commands: tuple[str, ...] = ()
    """Shell commands after the installation, run in a copy of the bento."""
    skipped_commands: tuple[str, ...] = ()
    """Shell commands for the container's system (apt-get …), which are not run on a host."""
    build_env: Mapping[str, str] = field(default_factory=dict)
    secrets: SecretSet = field(default_factory=SecretSet)

    @property
    def requirements(self) -> Path:
        return self.bento / REQUIREMENTS


def read_spec(
    bento: Path,
    image: Mapping[str, Any],
    build_env: Mapping[str, str],
    secrets: SecretSet | None = None,
    files: Mapping[str, str] | None = None,
) -> EnvironmentSpec:
    """The spec of an unpacked bento; `image` is the mapping of that name in its `bento.yaml`. Of
    `secrets` their versions are part of the digest, and no value. `files` are digests of all its
    files by path, for whoever has only its requirements.

    Raises `EnvironmentFailed` for requirements that only the machine that built the bento can meet.
    """
    lines = _requirements(bento)
    for line in lines:
        if _OTHER_MACHINES_FILE.search(line):
            raise EnvironmentFailed(
                f"The requirement {line!r} is a file on the machine that built the bento; "
                "install that package from a package index there, or put its wheel in the "
                "project's wheels/ folder, and build the bento again."
            )
    python_version = str(image.get("python_version") or "")
    if not python_version:
        raise EnvironmentFailed("The bento names no Python version (image.python_version).")
    if not is_version(python_version):
        raise EnvironmentFailed(
            f"The bento's Python version (image.python_version) {python_version[:60]!r} is none; "
            "build it again with one such as 3.11."
        )
    post_commands = tuple(image.get("post_commands") or ())
    # Code of the bento that takes part in the build makes the environment this bento's own.
    needs_sources = bool(post_commands) or any(_NEEDS_SOURCES.match(line) for line in lines)
    part = "" if needs_sources else WHEELS
    return EnvironmentSpec(
        digest=_digest(
            [SPEC_VERSION, python_version, *lines],
            post_commands,
            [f"{name}={value}" for name, value in sorted(build_env.items())],
            list(_file_digests(bento / part) if files is None else _digests_below(part, files)),
            *([[f"secrets {secrets.digest}"]] if secrets else []),
        ),
        bento=bento,
        python_version=python_version,
        post_commands=post_commands,
        skipped_commands=tuple(image.get("commands") or ()),
        build_env=dict(build_env),
        secrets=secrets or SecretSet(),
    )


def _requirements(bento: Path) -> list[str]:
    """The lines without comments and blank ones."""
    try:
        with (bento / REQUIREMENTS).open("rb") as file:
            content = file.read(REQUIREMENTS_BYTES + 1)
    except FileNotFoundError:
        raise EnvironmentFailed(
            f"The bento has no {REQUIREMENTS}; build it with bentoml 1.4 or newer."
        ) from None
    if len(content) > REQUIREMENTS_BYTES:
        raise EnvironmentFailed(
            f"The bento's {REQUIREMENTS} has more than {REQUIREMENTS_BYTES >> 20} MiB; build the "
            "bento with fewer requirements."
        )
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise EnvironmentFailed(f"The bento's {REQUIREMENTS} is no text: {error}") from None
    lines = (_COMMENT.sub("", line).strip() for line in text.splitlines())
    return [line for line in lines if line]


def _file_digests(folder: Path) -> Iterator[str]:
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            with path.open("rb") as file:
                digest = blake3()
                while block := file.read(1 << 20):
                    digest.update(block)
            yield f"{path.relative_to(folder)}={digest.hexdigest()}"


def _digests_below(part: str, files: Mapping[str, str]) -> Iterator[str]:
    for path, digest in sorted(files.items()):
        if path.startswith(part):
            yield f"{path.removeprefix(part)}={digest}"


def _digest(*groups: list[str] | tuple[str, ...]) -> str:
    text = "\0\0".join("\0".join(group) for group in groups)
    return blake3(text.encode()).hexdigest()[:32]
