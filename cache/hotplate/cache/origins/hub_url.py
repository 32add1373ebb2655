"""How a model of a Hugging Face hub is named: `hf://ORG/NAME@REVISION[/FOLDER]`.

After that may come `?endpoint=URL&include=PATTERN&exclude=PATTERN`, patterns as often as needed.
A bento's author writes all of it, a hub gives the names of files, and our folders are named after
both. So a URL that could lead anywhere else cannot be made.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from urllib.parse import parse_qs, quote, unquote, urlencode

from hotplate.cache.errors import UnknownUrl
from hotplate.cache.member_path import clean_path

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,95}")
"""The name of an owner, a model, a branch or a tag; the hash of a commit is one too."""
_COMMIT = re.compile(r"[0-9a-f]{7,64}")

_PATTERNS_MAX, _PATTERN_MAX_CHARACTERS = 100, 256
"""Each pattern is tried on every file of the model."""

_ASKED = ("endpoint", "include", "exclude")


def is_commit(text: str) -> bool:
    """Whether it is the hash of a commit, which cannot change as a branch or tag can."""
    return _COMMIT.fullmatch(text) is not None


@dataclass(frozen=True)
class HubUrl:
    """A model at a hub, or one of its files. Raises UnknownUrl for anything else."""

    model_id: str
    revision: str = "main"
    path: str = ""
    endpoint: str = ""
    """Empty for the agent's own."""
    include: tuple[str, ...] = ()
    """Patterns of the files that are selected; none = all."""
    exclude: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        owner_and_name = self.model_id.split("/")
        if len(owner_and_name) > 2 or not all(map(_is_name, owner_and_name)):
            raise UnknownUrl(
                f"{self.model_id!r} is no model of a hub: write hf://ORG/NAME@REVISION, both names "
                "of letters, digits and ._-"
            )
        if _NAME.fullmatch(self.revision) is None:
            raise UnknownUrl(
                f"{self.revision!r} is no revision of {self.model_id}: write "
                "hf://ORG/NAME@REVISION with the hash of a commit, or one name of letters, digits "
                "and ._-"
            )
        if self.path:
            _check_path(self.path)
        patterns = (*self.include, *self.exclude)
        if len(patterns) > _PATTERNS_MAX or any(len(p) > _PATTERN_MAX_CHARACTERS for p in patterns):
            raise UnknownUrl(
                f"{self.model_id} is asked for with {len(patterns)} patterns; at most "
                f"{_PATTERNS_MAX} can be given, of at most {_PATTERN_MAX_CHARACTERS} characters"
                " each"
            )

    def __str__(self) -> str:
        at = f"hf://{self.model_id}@{quote(self.revision, safe='')}"
        path = f"/{self.path}" if self.path else ""
        asked = {name: value for name in _ASKED if (value := getattr(self, name))}
        return at + path + (f"?{urlencode(asked, doseq=True)}" if asked else "")

    @staticmethod
    def of(url: str) -> HubUrl:
        """Raises UnknownUrl for anything but a model's URL."""
        body, _, query = url.removeprefix("hf://").removeprefix("models/").partition("?")
        if "@" in body:
            model_id, _, rest = body.partition("@")
            revision, _, path = rest.partition("/")
        else:
            parts = body.split("/")
            model_id, revision, path = "/".join(parts[:2]), "main", "/".join(parts[2:])
        asked = parse_qs(query)
        if unknown := asked.keys() - set(_ASKED):
            raise UnknownUrl(f"{url} asks for {min(unknown)}, which is none of {', '.join(_ASKED)}")
        patterns = (tuple(asked.get(name, ())) for name in _ASKED[1:])
        endpoint = asked.get("endpoint", [""])[0]
        return HubUrl(model_id, unquote(revision), path, endpoint, *patterns)

    def names(self, file: str) -> bool:
        """Whether a file of the model is selected."""
        below = not self.path or f"{file}/".startswith(f"{self.path}/")
        included = not self.include or _matches(file, self.include)
        return below and included and not _matches(file, self.exclude)


def _is_name(text: str) -> bool:
    """`--` stands for the slash in the folders of a hub's client."""
    return _NAME.fullmatch(text) is not None and "--" not in text


def _check_path(path: str) -> None:
    """Raises UnknownUrl for a path that may leave its folder, or that reads as more than a path."""
    try:
        plain = clean_path(path.encode(), folder=False) == path
        reason = "" if plain else "its path begins with './'"
    except ValueError as exc:
        reason = "its name is not UTF-8" if isinstance(exc, UnicodeError) else str(exc)
    if not reason and ("?" in path or any(ord(one) < 32 or ord(one) == 127 for one in path)):
        reason = "its name has a question mark or a control character"
    if reason:
        raise UnknownUrl(f"{path[:200]!r} is no file of a model: {reason}")


def _matches(file: str, patterns: tuple[str, ...]) -> bool:
    """Matches as the hub's own client does: a pattern that ends with a slash means all below."""
    return any(fnmatchcase(file, f"{one}*" if one.endswith("/") else one) for one in patterns)
