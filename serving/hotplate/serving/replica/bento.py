"""An unpacked bento: what its `bento.yaml` says about its environment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from hotplate.cache.errors import UnknownUrl
from hotplate.cache.origins.hub_url import HubUrl
from hotplate.cache.origins.hubs import Hubs
from hotplate.serving.replica.description import read_description
from hotplate.serving.replica.errors import BentoUnusable


@dataclass(frozen=True)
class Bento:
    """A bento's folder, and what its replicas need of its description."""

    folder: Path
    image: Mapping[str, Any]
    """`python_version`, `commands`, `post_commands` …"""
    envs: tuple[Mapping[str, Any], ...] = ()
    """Variables of the entry service: `name`, `value` ("" = required), `stage`."""
    hub_models: tuple[HubUrl, ...] = ()
    """Models that stay at a hub, each fixed to a commit."""
    files: Mapping[str, str] | None = None
    """A digest of each of its files by path, where not all of them are in the folder."""


def read_bento(folder: Path, hubs: Hubs, files: Mapping[str, str] | None = None) -> Bento:
    """Reads a bento; `files` are what is known of its files where the folder has not all of them.
    Raises `BentoUnusable` if the folder is no bento, the bento has the legacy format, or it names a
    model at a hub that is not one of `hubs`."""
    try:
        about = _described((folder / "bento.yaml").read_bytes())
    except (FileNotFoundError, ValueError) as error:
        raise BentoUnusable(
            "The bento has no bento.yaml that can be read; push it again."
        ) from error
    if about.get("spec") != 2 or not about.get("image"):
        raise BentoUnusable(
            "The bento is in BentoML's legacy format (spec 1), which is not served: make its "
            "service a class with @bentoml.service (not bentoml.legacy.Service, runners or "
            "bentoml.io), without conda, cuda_version or a Dockerfile template, and build it with "
            "bentoml 1.4 or newer."
        )
    image, envs = about["image"], about.get("envs") or []
    readable = isinstance(image, dict) and isinstance(envs, list)
    if not readable or not all(isinstance(each, dict) and each.get("name") for each in envs):
        raise BentoUnusable(
            "The bento.yaml of the bento is damaged (image or envs); build the bento again."
        )
    return Bento(folder, image, tuple(envs), hub_models(about, hubs), files)


@lru_cache(maxsize=64)
def _described(data: bytes) -> Mapping[str, Any]:
    """Each start reads it, and parsing costs more than all else that is done with it."""
    return read_description(data)


def hub_models(about: Mapping[str, Any], hubs: Hubs) -> tuple[HubUrl, ...]:
    """The models that BentoML would download from a hub before the service starts. `about` is the
    content of `bento.yaml`. Raises `BentoUnusable` for a model that is not at one of these hubs."""
    models = about.get("models")
    return tuple(_hub_models(models if isinstance(models, list) else (), hubs))


def _hub_models(models: Sequence[Any], hubs: Hubs) -> Iterator[HubUrl]:
    for model in models:
        about = model.get("metadata") if isinstance(model, dict) else None
        if not isinstance(about, dict) or model.get("registry") != "huggingface":
            continue
        if about.get("model_id") and about.get("revision"):
            try:
                found = HubUrl(
                    str(about["model_id"]),
                    str(about["revision"]),
                    endpoint=str(about.get("endpoint") or ""),
                    include=_patterns(about.get("include")),
                    exclude=_patterns(about.get("exclude")),
                )
                hubs.check(found)
            except UnknownUrl as error:
                raise BentoUnusable(f"A model of the bento cannot be had: {error}.") from error
            yield found


def _patterns(given: Any) -> tuple[str, ...]:
    return tuple(map(str, given)) if isinstance(given, list) else ()
