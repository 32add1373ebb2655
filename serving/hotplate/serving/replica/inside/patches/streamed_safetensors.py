"""Puts streaming in safetensors' place, so that unmodified code streams."""

from __future__ import annotations

import sys
from typing import Any

import safetensors

from hotplate.serving.streaming.audit import install_hook
from hotplate.serving.streaming.library import stock_safe_open
from hotplate.serving.streaming.weights_clock import WeightsSpan, weights_span
from hotplate.serving.weights import safe_open

__all__ = ["WeightsSpan", "install", "weights_span"]

_NAME = "safe_open"
_HOME = "safetensors._safetensors_rust"
"""The original, for paths that are not the agent's."""


def install() -> None:
    """Call once, at the process's birth. A second call does nothing.

    Replaces `safetensors.safe_open`, from where libraries take it by name, and the copies of
    modules that were imported before; imports neither torch nor numpy.
    """
    if safetensors.safe_open is safe_open:
        return
    for name, module in list(sys.modules.items()):
        names = _names(module)
        if names.get(_NAME) is stock_safe_open and name != _HOME:
            names[_NAME] = safe_open
    install_hook()


def _names(module: Any) -> dict[str, Any]:
    """A module's own dictionary, without waking lazy modules as `vars` would."""
    try:
        names = object.__getattribute__(module, "__dict__")
    except AttributeError:
        return {}
    return names if isinstance(names, dict) else {}
