"""Where callers of a public route arrive."""

from __future__ import annotations

from dataclasses import replace

from hotplate.platform.controller.planning.addresses import Addresses
from tests.support.control_plane.situations import deployment, revision

ECHO = deployment(revision(1), None)
BY_NAME = Addresses("", hosts=lambda each: [f"{each.name}.models.test"])


def test_each_has_a_port_of_its_own_or_host_names() -> None:
    assert Addresses("0.0.0.0").public(ECHO) == {"host": "0.0.0.0", "port": ECHO.port}
    assert BY_NAME.public(ECHO) == {"host": "", "port": 0, "hosts": ("echo.models.test",)}


def test_nobody_arrives_at_a_version_of_a_canary() -> None:
    version = replace(ECHO, name="echo#next")
    for addresses in (Addresses("0.0.0.0"), BY_NAME):
        assert addresses.public(version) == {"host": "", "port": 0}
