"""Secrets, as users write them: their content, checked, and which ones a deployment names; pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import combinations
from pathlib import PurePosixPath
from typing import Any

from hotplate.platform.errors import Invalid
from hotplate.platform.spec.fields import SHOWN_MAX, Fields
from hotplate.platform.spec.names import check_name
from hotplate.platform.spec.variables import VARIABLE_MAX_BYTES
from hotplate.serving.replica.inside.reserved import is_reserved

HOME = "$BENTOML_HOME"
"""What the path of a file begins with, to the letter: the folder of that name in each replica."""
VALUE_MAX_BYTES = 1 << 20
SECRET_MAX_BYTES = 4 << 20
"""Of all values of a secret together."""
VARIABLES_MAX_BYTES = 256 << 10
"""Of the variables of all secrets of one deployment: beside those of the bento, the deployment and
the service, which `spec/variables.py` limits, they fit into what Linux gives a process."""
ITEMS_MAX = 200
SECRETS_MAX = 100
"""Of one deployment."""
PATH_MAX_BYTES, PART_MAX_BYTES = 1024, 255
"""Of a file below the home, as Linux's PATH_MAX leaves room for the home; and its NAME_MAX."""
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


class SecretType(StrEnum):
    """As what a replica gets a secret."""

    ENV = "env"
    FILE = "mountfile"


class SecretStage(StrEnum):
    """When a secret is there: while the environment is built, while replicas run, or both."""

    RUNTIME = "runtime"
    BUILD = "build"
    ALL = "all"

    @property
    def builds(self) -> bool:
        return self is not SecretStage.RUNTIME

    @property
    def runs(self) -> bool:
        return self is not SecretStage.BUILD


@dataclass(frozen=True)
class SecretItem:
    """One key of a secret."""

    key: str
    sub_path: str = ""
    size_bytes: int = 0
    """Of its value."""
    value: str | None = field(default=None, repr=False)
    """None = it stays as it is, or is not told."""


@dataclass(frozen=True)
class SecretContent:
    """What a secret is, without or with its values."""

    type: SecretType
    stage: SecretStage
    items: tuple[SecretItem, ...]
    path: str = ""
    """Of files: where they lie, from `$BENTOML_HOME` on."""

    def file_of(self, item: SecretItem) -> str:
        """Where the item's file lies below `$BENTOML_HOME`; "" for a variable."""
        if self.type is SecretType.ENV:
            return ""
        return str(PurePosixPath(self.path.removeprefix(HOME).lstrip("/"), item.sub_path, item.key))


def secret_name(path: str, name: str) -> str:
    """A name as those of bentos. Raises Invalid."""
    return check_name(path, name)


def secret_content(fields: Fields) -> SecretContent:
    """The `content` of a create or update, of which no complaint repeats a value. Items without a
    value have None. Raises Invalid."""
    fields = fields.hiding()
    kind = SecretType(fields.choice("type", [str(each) for each in SecretType]) or SecretType.ENV)
    stage = SecretStage(
        fields.choice("stage", [str(each) for each in SecretStage]) or SecretStage.RUNTIME
    )
    path = _path(fields) if kind is SecretType.FILE else ""
    given = list(fields.items("items"))
    if not 0 < len(given) <= ITEMS_MAX:
        raise Invalid(
            f"{fields.at('items')}: a secret has 1 to {ITEMS_MAX} keys, and this one {len(given)}; "
            "make several secrets"
        )
    items = tuple(_item(each, kind) for each in given)
    content = SecretContent(kind, stage, items, path)
    keys = [item.key for item in items]
    for index, item in enumerate(items):
        at = f"{fields.at('items')}[{index}]"
        if item.key in keys[:index]:
            raise Invalid(f"{at}.key: {item.key!r:.{SHOWN_MAX}} is there twice")
        _check_length(at, content.file_of(item))
    size_bytes = sum(item.size_bytes for item in items)
    if size_bytes > SECRET_MAX_BYTES:
        raise Invalid(
            f"{fields.at('items')}: their values have {size_bytes} bytes together (limit "
            f"{SECRET_MAX_BYTES}); make several secrets"
        )
    return content


def named_together(config: Mapping[str, Any]) -> list[list[str]]:
    """Names of secrets in a deployment's config that one replica gets together: those of the
    deployment, and of each version of its canary."""
    versions = ((config.get("canary") or {}).get("versions") or {}).values()
    return [list(each.get("secrets") or ()) for each in (config, *versions)]


def named(config: Mapping[str, Any]) -> set[str]:
    """All names of secrets in a deployment's config."""
    return {name for together in named_together(config) for name in together}


def secret_names(fields: Fields) -> list[str]:
    """The list `secrets` of a deployment's config; a name that is there twice counts once. Raises
    Invalid."""
    path, given = fields.at("secrets"), fields.texts("secrets")
    if len(given) > SECRETS_MAX:
        raise Invalid(
            f"{path}: {len(given)} are too many for one deployment ({SECRETS_MAX} at most); put "
            "more keys into each"
        )
    names = [secret_name(f"{path}[{n}]", name) for n, name in enumerate(given)]
    return list(dict.fromkeys(names))


def check_together(contents: Mapping[str, SecretContent], at: str = "secrets") -> None:
    """Whether one replica can have these secrets, by their names. Raises Invalid."""
    for (one, content), (other, against) in combinations(contents.items(), 2):
        keys = {item.key for item in content.items}
        if both := sorted(keys.intersection(item.key for item in against.items)):
            raise Invalid(
                f"{at}: {one!r} and {other!r} both have the key {both[0]!r:.{SHOWN_MAX}}; rename "
                "it in one of them, or leave one out"
            )
    files = sorted(
        (PurePosixPath(file), name)
        for name, content in contents.items()
        for file in map(content.file_of, content.items)
        if file
    )
    for (above, one), (below, other) in combinations(files, 2):
        if above == below or above in below.parents:
            raise Invalid(
                f"{at}: the file {str(above)!r:.{SHOWN_MAX}} of {one!r} is where {other!r} has "
                f"{str(below)!r:.{SHOWN_MAX}}; give one of them another path"
            )
    size_bytes = sum(
        len(item.key) + item.size_bytes + 2
        for content in contents.values()
        if content.type is SecretType.ENV
        for item in content.items
    )
    if size_bytes > VARIABLES_MAX_BYTES:
        raise Invalid(
            f"{at}: their variables have {size_bytes} bytes together (limit "
            f"{VARIABLES_MAX_BYTES}); make what is long a file: --type file"
        )


def _words(kind: type[StrEnum]) -> list[str]:
    return [str(word) for word in kind]


def _item(fields: Fields, kind: SecretType) -> SecretItem:
    key = fields.exact_text("key")
    sub_path = ""
    if kind is SecretType.ENV:
        if not _VARIABLE.fullmatch(key) or len(key) > PART_MAX_BYTES:
            raise Invalid(
                f"{fields.at('key')}: {key!r:.{SHOWN_MAX}} is no name of a variable; it has "
                f"letters, digits and '_', no digit first, {PART_MAX_BYTES} at most"
            )
        if is_reserved(key):
            raise Invalid(
                f"{fields.at('key')}: {key!r:.{SHOWN_MAX}} is the platform's own in every "
                "replica, so it cannot be set; remove it"
            )
    else:
        if not key or "/" in key:
            raise Invalid(
                f"{fields.at('key')}: {key!r:.{SHOWN_MAX}} is no name of a file; put its folder "
                "into sub_path"
            )
        _check_parts(fields.at("key"), key)
        sub_path = fields.exact_text("sub_path") if fields.has("sub_path") else ""
        if sub_path.startswith("/"):
            raise Invalid(_outside(fields.at("sub_path"), sub_path))
        _check_parts(fields.at("sub_path"), sub_path)
    if not fields.has("value"):
        return SecretItem(key, sub_path)
    value, size_bytes = _value(fields, kind)
    return SecretItem(key, sub_path, size_bytes, value)


def _value(fields: Fields, kind: SecretType) -> tuple[str, int]:
    value = fields.exact_text("value")
    size_bytes = len(value.encode())
    most = VALUE_MAX_BYTES if kind is SecretType.FILE else VARIABLE_MAX_BYTES - PART_MAX_BYTES - 2
    if size_bytes > most:
        instead = "" if kind is SecretType.FILE else "; make it a file: --type file"
        raise Invalid(
            f"{fields.at('value')}: it has {size_bytes} bytes, and a secret "
            f"{'file' if kind is SecretType.FILE else 'variable'} {most} at most{instead}"
        )
    return value, size_bytes


def _path(fields: Fields) -> str:
    path = fields.exact_text("path") if fields.has("path") else ""
    path = path or HOME
    if path != HOME and not path.startswith(f"{HOME}/"):
        raise Invalid(_outside(fields.at("path"), path))
    _check_parts(fields.at("path"), path.removeprefix(HOME).lstrip("/"))
    return path


def _check_parts(at: str, path: str) -> None:
    for part in filter(None, path.split("/")):
        if part == "..":
            raise Invalid(_outside(at, path))
        if part == "." or len(part.encode()) > PART_MAX_BYTES:
            raise Invalid(
                f"{at}: {part!r:.{SHOWN_MAX}} is no name of a file; it has up to "
                f"{PART_MAX_BYTES} bytes and is not '.'"
            )


def _check_length(at: str, file: str) -> None:
    size_bytes = len(file.encode())
    if size_bytes > PATH_MAX_BYTES:
        raise Invalid(
            f"{at}: its path has {size_bytes} bytes (limit {PATH_MAX_BYTES}); choose a shorter one"
        )


def _outside(at: str, path: str) -> str:
    return (
        f"{at}: {path!r:.{SHOWN_MAX}} is not below {HOME}, where files of secrets lie; write "
        f"{HOME}/FOLDER"
    )
