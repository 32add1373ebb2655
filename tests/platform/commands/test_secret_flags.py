"""Tokens stand in no list of arguments, wherever they came from."""

from __future__ import annotations

import http.server
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from hotplate.platform.commands import secret_flags
from hotplate.platform.errors import BadSetting
from hotplate.platform.processes.data_dir import DataDir
from hotplate.platform.processes.roles import roles_of
from hotplate.platform.settings import PlatformSettings

TOKEN = "s3cret-of-the-operator"


@pytest.mark.parametrize(
    ("argv", "found"),
    [
        ("up --data d", None),
        ("up --admin-token x --port 1", ("--admin-token", "x", ("up",), ("--port", "1"))),
        ("up --admin-token=x=y", ("--admin-token", "x=y", ("up",), ())),
        ("up --admin-token-file f", None),
        ("up --admin-token=", None),
        ("up --admin-token", None),
        ("status a --token x", ("--token", "x", ("status", "a"), ())),
    ],
)
def test_a_secret_is_found_among_arguments(argv: str, found: tuple[object, ...] | None) -> None:
    assert secret_flags.find(argv.split()) == found


def test_a_token_that_was_given_as_a_flag_is_soon_seen_by_nobody() -> None:
    """`/proc/<pid>/cmdline` while the platform takes its time to answer."""
    seen: list[tuple[bytes, str]] = []
    asked = threading.Event()

    class Platform(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            words = Path(f"/proc/{process.pid}/cmdline").read_bytes()
            seen.append((words, self.headers["X-YATAI-API-TOKEN"]))
            self.send_error(503)
            asked.set()

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Platform) as server:
        threading.Thread(target=server.serve_forever).start()
        endpoint = f"http://127.0.0.1:{server.server_port}"
        command = [sys.executable, "-m", "hotplate.platform.cli", "events"]
        process = subprocess.Popen(
            [*command, "--endpoint", endpoint, "--token", TOKEN],
            stderr=subprocess.PIPE,
            text=True,
        )
        _, said = process.communicate()
        server.shutdown()
    assert asked.is_set()
    ((words, token),) = seen
    assert token == TOKEN, "and it works as before"
    assert TOKEN.encode() not in words
    assert "--token shows the token to every user" in said
    assert "--token-file" in said
    assert TOKEN not in said


def test_a_token_is_read_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    assert secret_flags.read(str(tmp_path / "token")) == TOKEN
    (tmp_path / "token").write_text("two words")
    with pytest.raises(BadSetting, match=r"--admin-token-file .* holds no token"):
        secret_flags.read(str(tmp_path / "token"), "--admin-token-file")


@pytest.mark.parametrize("url", ["sftp://ann:S3-Cret@host/blobs", "https://host/blobs?key=S3-Cret"])
def test_a_password_in_the_url_of_blobs_stands_in_no_roles_arguments(
    tmp_path: Path, url: str
) -> None:
    data = DataDir.at(tmp_path)
    ports = {"agent": 1, "gateway": 2}
    agent, *others = roles_of(PlatformSettings(blobs_url=url), data, ports)
    assert not [word for role in (agent, *others) for word in role.argv if "S3-Cret" in word]
    file = Path(agent.argv[agent.argv.index("--origin-file") + 1])
    assert file.read_text().strip() == url
    assert file.stat().st_mode & 0o077 == 0
    plain, *_ = roles_of(PlatformSettings(blobs_url="s3://bucket/blobs"), data, ports)
    assert plain.argv[plain.argv.index("--origin") + 1] == "s3://bucket/blobs"
