from __future__ import annotations

import json
import subprocess
import sys

PROGRAM = """
import json, sys
from hotplate.serving.replica.inside.unused_imports import unused_left_out

UNUSED = ("circus", "tornado", "zmq", "rich", "pyparsing", "pygments", "bentoml._internal.cloud")
with unused_left_out():
    import _bentoml_impl.server.app
said = {"imported": [name for name in UNUSED if name in sys.modules]}

import httpx._main
import pyparsing
from _bentoml_impl.server import proxy, serving
from _bentoml_sdk.models import base
from bentoml._internal.cloud.config import CloudClientConfig
from bentoml._internal.cloud.schemas.modelschemas import LabelItemSchema
from bentoml._internal.utils import circus
from bentoml._internal.utils.analytics import schemas

said["real"] = [module.__spec__ is not None for module in (pyparsing, circus, httpx._main)]
said["server"] = type(serving.Server(url="x", arbiter=None)) is circus.Server
said["label"] = type(base.LabelItemSchema(key="a", value="b")) is LabelItemSchema
said["config"] = schemas.CloudClientConfig.get_config == CloudClientConfig.get_config
said["cast"] = proxy.cast("list[str]", "as it is")
with unused_left_out():
    said["stays"] = sys.modules["pyparsing"] is pyparsing
print(json.dumps(said))
"""
OTHER_NAMES = """
import sys
from hotplate.serving.replica.inside.unused_imports import unused_left_out

with unused_left_out():
    from pyparsing import Word
assert Word is sys.modules["pyparsing"].Word
with unused_left_out():
    from bentoml._internal.cloud.client import BaseRestApiClient
    import bentoml._internal.cloud as cloud
    assert isinstance(cloud.RestApiClient, type)
with unused_left_out(used=["bentoml._internal.utils.circus"]):
    import bentoml._internal.utils.circus
    assert "circus" in sys.modules
"""


def printed(program: str) -> str:
    command = [sys.executable, "-W", "ignore", "-c", program]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_bentoml_is_imported_without_what_is_unused_which_is_loaded_when_it_is_used() -> None:
    assert json.loads(printed(PROGRAM)) == {
        "imported": [],
        "real": [True, True, True],
        "server": True,
        "label": True,
        "config": True,
        "cast": "as it is",
        "stays": True,
    }


def test_any_other_name_is_that_of_the_module_and_what_is_used_is_imported() -> None:
    printed(OTHER_NAMES)
