"""Variables of the cloud that BentoML must not see, though the service's own code sees them; runs
in the replica (Python >= 3.9).

If `BENTOCLOUD_DEPLOYMENT_URL` is set, BentoML assumes the queue and the balancer of BentoCloud: a
service's calls to itself use the public address and need a slot and a token, tasks that the replica
keeps fail, and `get_hosts` queries a dependency's address in a protocol that the gateway does not
have.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, MutableMapping
from importlib import import_module
from types import ModuleType
from typing import Any

from hotplate.serving.replica.inside.reserved import DEPLOYMENT_URL

READERS = ("_bentoml_impl.server.app", "_bentoml_sdk.service.factory")
"""BentoML's modules that read it to decide what they do; all use it through the name `os`."""


def hide_url() -> None:
    """Hides the URL of the deployment from BentoML's own modules, and from no others."""
    for name in READERS:
        module: Any = import_module(name)
        if getattr(module, "os", None) is os:
            module.os = _Os("os")


class _Os(ModuleType):
    """The module `os` without one variable."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.environ = _Environ()

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def getenv(self, key: str, default: Any = None) -> Any:
        return self.environ.get(key, default)


class _Environ(MutableMapping[str, str]):
    def __getitem__(self, name: str) -> str:
        if name == DEPLOYMENT_URL:
            raise KeyError(name)
        return os.environ[name]

    def __setitem__(self, name: str, value: str) -> None:
        os.environ[name] = value

    def __delitem__(self, name: str) -> None:
        del os.environ[name]

    def __iter__(self) -> Iterator[str]:
        return (name for name in os.environ if name != DEPLOYMENT_URL)

    def __len__(self) -> int:
        return sum(1 for _ in self)
