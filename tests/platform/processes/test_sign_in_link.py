"""The link that `hotplate up` prints, and where it does not."""

from __future__ import annotations

import os
import pty
import socket
from pathlib import Path

import pytest

from hotplate.platform.processes.sign_in_link import may_show_secrets, sign_in_link
from hotplate.platform.store.parts import Store
from tests.support.control_plane.cloud import Cloud


async def test_it_signs_in_whose_token_it_is(cloud: Cloud, store: Store) -> None:
    async with Cloud(cloud.server, store, name="root", operator=True) as operator:
        url = operator.url.rstrip("/")
        link = await sign_in_link(url, operator.token)
    head, _, secret = link.partition("=")
    assert head == f"{url}/login?link"
    found = store.sign_ins.find(store.sign_ins.follow_link(secret))
    assert found is not None
    assert (found.user.name, found.operator) == ("root", True)


@pytest.mark.parametrize("url", ["", "http://127.0.0.1:9"])
async def test_without_one_the_platform_starts_all_the_same(cloud: Cloud, url: str) -> None:
    assert await sign_in_link(url or cloud.url.rstrip("/"), "no token") == ""


def test_a_terminal_and_a_program_show_it_and_what_stays_does_not(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    reading, writing = os.pipe()
    one, other = socket.socketpair()
    for descriptor, shown in ((theirs, True), (writing, True), (one.detach(), False)):
        with os.fdopen(descriptor, "w") as output:
            assert may_show_secrets(output) is shown
        assert not may_show_secrets(output), "it is closed"
    with (tmp_path / "log").open("w") as file, Path("/dev/null").open("w") as nothing:
        assert not may_show_secrets(file)
        assert not may_show_secrets(nothing)
    other.close()
    for descriptor in (ours, reading):
        os.close(descriptor)
