"""Lets Python code and child programs see complete files only.

An audit hook runs before Python opens a file or starts a program (PEP 578), so it can wait for
a file that is still arriving. Streaming, through `weights.safe_open`, bypasses it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from hotplate.serving.streaming.source import SUFFIX, TREES, is_placeholder, open_source

MODELS = "HOTPLATE_MODELS"
"""Environment: the replica's model folders, joined by the system's path separator."""


def install_hook() -> None:
    """Install the hook for the rest of the process's life; an audit hook cannot be removed.

    The interpreter calls it until its very end, when this module's names are gone already.
    """

    before, events, ends = _before, {"open", *_PROGRAMS}, sys.is_finalizing

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if event in events and not ends():
            before(event, args)

    sys.addaudithook(hook)


def _before(event: str, args: tuple[Any, ...]) -> None:
    if event == "open":
        _before_open(args[0], args[-1])
    elif _name_models(_PROGRAMS[event](*args)):
        wait_for_models()


def _before_open(path: Any, flags: Any) -> None:
    if isinstance(path, (str, bytes, os.PathLike)) and os.fsdecode(path).endswith(SUFFIX):
        reading = not isinstance(flags, int) or flags & os.O_ACCMODE != os.O_WRONLY
        if reading:
            _wait_for(os.fsdecode(path))


def _wait_for(path: str) -> None:
    source = open_source(path) if is_placeholder(path) else None
    if source is not None:
        source.wait_linked()


def wait_for_models() -> None:
    """Block until no file of the replica's models is a stand-in. Raises OSError."""
    for folder in _model_folders():
        for parent, _, names in os.walk(folder, followlinks=True):
            for name in names:
                if name.endswith(SUFFIX):
                    _wait_for(os.path.join(parent, name))


def _model_folders() -> Iterator[str]:
    return filter(None, os.environ.get(MODELS, "").split(os.pathsep))


def _name_models(arguments: Iterable[Any]) -> bool:
    """Whether arguments of a command or its environment point into the models.

    Libraries start small programs while they are imported (`ldconfig`, `gcc`, `uname`); to let
    those wait for the weights would undo the streaming.
    """
    folders = [*filter(None, [os.environ.get(TREES)]), *_model_folders()]
    folders += [os.path.realpath(folder) for folder in folders]
    texts = [os.fsdecode(one) for one in arguments if isinstance(one, (str, bytes, os.PathLike))]
    return any(folder in text for folder in folders for text in texts)


def _command(arguments: Any) -> Iterable[Any]:
    return [arguments] if isinstance(arguments, (str, bytes, os.PathLike)) else list(arguments)


def _settings(env: Any) -> Iterable[Any]:
    """The environment's values, without our own, which always name the models."""
    values: Mapping[Any, Any] = os.environ if env is None else env
    return [
        value for name, value in values.items() if not os.fsdecode(name).startswith("HOTPLATE_")
    ]


_PROGRAMS: dict[str, Callable[..., Iterable[Any]]] = {
    "subprocess.Popen": lambda _, arguments, cwd, env: [*_command(arguments), cwd, *_settings(env)],
    "os.posix_spawn": lambda _, arguments, env: [*arguments, *_settings(env)],
    "os.exec": lambda _, arguments, env: [*arguments, *_settings(env)],
    "os.spawn": lambda _mode, _, arguments, env: [*arguments, *_settings(env)],
    "os.system": lambda command: [command, *_settings(None)],
    "pty.spawn": lambda arguments: [*_command(arguments), *_settings(None)],
}
"""By event: the paths and texts in its arguments, which come in the documented order."""
