"""What a replica reports about its service's methods, once it has loaded them; Python >= 3.9.

A bento's configuration does not say whether a method is async, and BentoML writes a concurrency
into that of services with tasks: only a process that has imported the service knows what its author
wrote.
"""

from __future__ import annotations

import inspect
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any, Optional

FILE_NAME = "methods.json"
KINDS = ("a command", "a mounted application", "batchable methods", "async methods")
"""What in a service may run concurrently without threads."""
MOST_BYTES = 64 << 10
"""Limit of the file in bytes."""
MOST_BATCH = 1000
MOST_CONCURRENCY = 1_000_000

_written: dict[int, Any] = {}
"""The `traffic.concurrency` that its author wrote, by the identity of the service."""


def watch_concurrency(service_class: Any) -> None:
    """Records what authors write, before BentoML adds to it. `service_class` is
    `_bentoml_sdk.Service`; call it before any service is imported."""
    finish = service_class.__attrs_post_init__

    def noted(self: Any) -> None:
        _written[id(self)] = (self.config.get("traffic") or {}).get("concurrency")
        finish(self)

    service_class.__attrs_post_init__ = noted


def describe(service: Any, overrides: dict[str, Any]) -> dict[str, Any]:
    """Describes the service: `concurrency` (as written, or null), `learns` (what in it may run
    concurrently without threads; "" if nothing), `batch` (the largest batch; 0 if it makes none),
    `only_tasks`. `overrides` are the deployment's, over the author's."""
    traffic = overrides.get("traffic") or {}
    others = [api for api in service.apis.values() if not api.is_task]
    mounted = bool(service.mount_apps)
    return {
        "concurrency": traffic.get("concurrency", _written.get(id(service))),
        "learns": _learns(service, others),
        "batch": max((api.max_batch_size for api in others if api.batchable), default=0),
        "only_tasks": bool(service.apis)
        and not others
        and not mounted
        and not service.has_custom_command(),
    }


def note(path: Path, description: dict[str, Any]) -> None:
    """Writes the description for the platform; on a full disk it is left out."""
    draft = path.with_suffix(".new")
    with suppress(OSError):
        draft.write_text(json.dumps(description), encoding="utf-8")
        os.replace(draft, path)


def noted_in(content: bytes) -> Optional[dict[str, Any]]:  # noqa: UP045
    """The description in the content of such a file; None if there is none."""
    try:
        return checked(json.loads(content[:MOST_BYTES]))
    except (ValueError, RecursionError):
        return None


def checked(description: Any) -> Optional[dict[str, Any]]:  # noqa: UP045
    """A valid description, from a process that is not trusted, because a bento's code can write it
    too; None if it is invalid."""
    try:
        concurrency, learns = description["concurrency"], description["learns"].split(", ")
        bounded = min(MOST_CONCURRENCY, max(1, int(concurrency))) if concurrency else None
        return {
            "concurrency": bounded,
            "learns": ", ".join(kind for kind in KINDS if kind in learns),
            "batch": min(MOST_BATCH, max(0, int(description["batch"]))),
            "only_tasks": bool(description["only_tasks"]),
        }
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError):
        return None


def _learns(service: Any, apis: list[Any]) -> str:
    has = (
        service.has_custom_command(),
        bool(service.mount_apps),
        any(api.batchable for api in apis),
        any(_is_async(api.func) for api in apis),
    )
    return ", ".join(kind for kind, there in zip(KINDS, has) if there)


def _is_async(function: Any) -> bool:
    from bentoml._internal.utils import get_original_func

    original = get_original_func(function)
    return inspect.iscoroutinefunction(original) or inspect.isasyncgenfunction(original)
