"""What is rehearsed before a fork is what the BentoML at hand does."""

from __future__ import annotations

import json
import subprocess
import sys

PROGRAM = """
import io, json, os
from bentoml._internal.bento.bento import BaseBentoInfo
from bentoml._internal.configuration import containers
from hotplate.serving.replica.inside.forking.rehearsal import BENTO, CONFIGURATION_VERSION, rehearse

before = containers.BentoMLContainer.config.get(), sorted(os.listdir("/proc/self/fd"))
rehearse()
after = containers.BentoMLContainer.config.get(), sorted(os.listdir("/proc/self/fd"))
(service,) = BaseBentoInfo.from_yaml_file(io.StringIO(BENTO)).services
config = containers.get_default_config(version=CONFIGURATION_VERSION)
print(json.dumps([before == after, service.name, service.dependencies[0].service, bool(config)]))
"""


def test_its_bento_can_be_read_and_leaves_nothing() -> None:
    said = subprocess.check_output([sys.executable, "-c", PROGRAM])
    assert json.loads(said) == [True, "Rehearsal", "Other", True]
