"""What an index calls the package of a module. Standard library only: it runs without .venv too."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec

_CALLED_OTHERWISE = {"pynvml": "nvidia-ml-py", "prometheus_client": "prometheus-client"}


def distribution(module: str) -> str:
    return _CALLED_OTHERWISE.get(module, module)


def missing(modules: Iterable[str]) -> list[str]:
    """The packages of those modules that this Python does not have."""
    return [distribution(name) for name in modules if find_spec(name) is None]
