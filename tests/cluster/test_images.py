"""Pods of this tree's images run as the platform's and replicas will: at the level `restricted`."""

from __future__ import annotations

import pytest

from tests.cluster.images.debian import USER
from tests.cluster.images.ours import NAMES, ensure, reference, version
from tests.cluster.installation import Installation
from tests.cluster.kubectl import Kubectl
from tests.cluster.pods import printed_by

pytestmark = [pytest.mark.cluster, pytest.mark.together]
_ALL_MODULES = """\
import importlib, pkgutil, sys
left_out = {"__main__", "antigravity", "idlelib", "this", "tkinter", "turtle", "turtledemo"}
assert sys.version_info[:2] == (3, 11), sys.version
for module in pkgutil.iter_modules():
    if module.name not in left_out:
        importlib.import_module(module.name)
"""


def test_the_product_starts_and_finds_what_it_needs_on_a_cluster(
    kubectl: Kubectl, namespace: str
) -> None:
    imports = "import kubernetes.aio, psycopg, s3fs, uv; print(uv.find_uv_bin())"
    gateway = "python3.11 -m hotplate.serving.gateway.compiled"
    script = (
        f"hotplate --version && hotplate gateway --help && {gateway} && python3.11 -c '{imports}'"
    )
    printed = printed_by(kubectl, namespace, "hotplate", "sh", "-c", script).splitlines()
    assert printed[0] == f"hotplate {version()}"
    assert printed[1].startswith("usage: hotplate gateway")
    assert printed[-2].startswith("/usr/lib/hotplate-gateway/"), "it is compiled"
    assert printed[-1] == "/usr/local/bin/uv"


def test_environments_find_the_whole_standard_library_and_nothing_of_ours(
    kubectl: Kubectl, namespace: str
) -> None:
    script = (
        f"id -u && uv --version && python3.11 -W ignore -c '{_ALL_MODULES}' && touch /own; "
        "ls /usr/local/lib/python3.11/dist-packages"
    )
    printed = printed_by(kubectl, namespace, "hotplate-runtime", "bash", "-c", script)
    user, uv, refused, *packages = printed.splitlines()
    assert user == USER
    assert uv.startswith("uv ")
    assert refused.endswith("Read-only file system")
    assert [name for name in packages if not name.startswith("uv")] == []


def test_images_are_written_and_taken_over_once(cluster: Installation) -> None:
    list(ensure(cluster.layout))
    assert list(ensure(cluster.layout)) == []
    listed = Kubectl(cluster.layout)(
        "get", "node", "node1", "--output=jsonpath={.status.images[*].names}"
    )
    for name in NAMES:
        assert f"docker.io/library/{reference(name)}" in listed
