"""How a model of a Hugging Face hub is named: `hf://ORG/NAME@REVISION[/FOLDER]`.

After that may come `?endpoint=URL&include=PATTERN&exclude=PATTERN`, patterns as often as needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from urllib.parse import parse_qs, quote, unquote, urlencode

from hotplate.cache.errors import UnknownUrl

_ASKED = ("endpoint", "include", "exclude")


@dataclass(frozen=True)
class HubUrl:
    """A model at a hub, or one of its files."""

    model_id: str
    revision: str = "main"
    path: str = ""
    endpoint: str = ""
    """Empty for the agent's own."""
    include: tuple[str, ...] = ()
    """Patterns of the files that are meant; none = all."""
    exclude: tuple[str, ...] = ()

    def __str__(self) -> str:
        at = f"hf://{self.model_id}@{quote(self.revision, safe='')}"
        path = f"/{self.path}" if self.path else ""
        asked = {name: value for name in _ASKED if (value := getattr(self, name))}
        return at + path + (f"?{urlencode(asked, doseq=True)}" if asked else "")

    @staticmethod
    def of(url: str) -> HubUrl:
        """Raises UnknownUrl for what is no model's URL."""
        body, _, query = url.removeprefix("hf://").removeprefix("models/").partition("?")
        if "@" in body:
            model_id, _, rest = body.partition("@")
            revision, _, path = rest.partition("/")
        else:
            parts = body.split("/")
            model_id, revision, path = "/".join(parts[:2]), "main", "/".join(parts[2:])
        if model_id.count("/") > 1 or not all(model_id.split("/")) or not revision:
            raise UnknownUrl(f"{url} is no model of a hub: write hf://ORG/NAME@REVISION")
        asked = parse_qs(query)
        if unknown := asked.keys() - set(_ASKED):
            raise UnknownUrl(f"{url} asks for {min(unknown)}, which is none of {', '.join(_ASKED)}")
        patterns = (tuple(asked.get(name, ())) for name in _ASKED[1:])
        endpoint = asked.get("endpoint", [""])[0]
        return HubUrl(model_id, unquote(revision), path, endpoint, *patterns)

    def names(self, file: str) -> bool:
        """Whether a file of the model is among those that are meant."""
        below = not self.path or f"{file}/".startswith(f"{self.path}/")
        included = not self.include or _matches(file, self.include)
        return below and included and not _matches(file, self.exclude)


def _matches(file: str, patterns: tuple[str, ...]) -> bool:
    """As the hub's own client: a pattern that ends with a slash means all below."""
    return any(fnmatchcase(file, f"{one}*" if one.endswith("/") else one) for one in patterns)
