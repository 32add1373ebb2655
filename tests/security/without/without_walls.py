"""No walls around replicas, as where the kernel refuses namespaces."""

from typing import Any

from hotplate.deploy.sandbox.isolation import Isolation


def init(self: Isolation, *_: Any, **__: Any) -> None:
    self.up = frozenset()
    self.refusals = {}
    self.refusal = "taken away by a test"


INSTEAD = [(Isolation, "__init__", init)]
