"""Imported by every Python process of a platform some of whose walls a test takes away.

`HOTPLATE_TEST_REMOVABLE` names them, with commas: modules beside this one, whose `INSTEAD` says
what lets everything through in the place of the product's own functions. The file at
`HOTPLATE_TEST_WITHOUT` names those that are away now.
"""

import importlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any


def replace(wall: str, holder: Any, name: str, instead: Callable[..., Any]) -> None:
    """Has the module's function, or the class's method, of that name be `instead` meanwhile."""
    if not hasattr(holder, name):
        # site shows any other exception and lets the process run, with the wall up.
        raise SystemExit(f"without_{wall} replaces {name} of {holder}, which has none: rename it")
    own, away = getattr(holder, name), Path(os.environ["HOTPLATE_TEST_WITHOUT"])

    def either(*args: Any, **kwargs: Any) -> Any:
        called = instead if wall in away.read_text().split() else own
        return called(*args, **kwargs)

    setattr(holder, name, either)


for wall in filter(None, os.environ.get("HOTPLATE_TEST_REMOVABLE", "").split(",")):
    for place in importlib.import_module(f"without_{wall}").INSTEAD:
        replace(wall, *place)
