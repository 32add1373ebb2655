"""`hotplate` commands that cannot do what is asked: one sentence, exit status 1."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from tests.support.end_to_end.any_platform import AnyPlatform
from tests.support.end_to_end.forks import run
from tests.support.end_to_end.platform_process import Platform


async def refusal(*arguments: str) -> str:
    """The sentence that the command prints; it must fail."""
    status, said = await run(["hotplate", *arguments], os.environ, Path.cwd())
    assert status == 1
    assert said.startswith("hotplate: ")
    assert said.count("\n") == 1, said
    return said.strip()


@pytest.mark.one_machine("it is about hotplate up")
async def test_a_second_up_on_the_same_data_is_refused(platform: Platform) -> None:
    said = await refusal("up", "--data", str(platform.data), "--port", "1")
    assert said.endswith("is in use by another 'hotplate up'; stop it or choose another --data")


@pytest.mark.one_machine("it is about hotplate up")
async def test_a_port_that_is_taken_is_named_and_nothing_stays_behind(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = await refusal("up", "--data", str(tmp_path / "data"), "--port", str(port))
    assert f"port {port} of 127.0.0.1 is not free (Address already in use)" in said
    assert running_in(tmp_path) == []


@pytest.mark.one_machine("it is about hotplate up")
async def test_an_address_of_another_machine_is_named(tmp_path: Path) -> None:
    said = await refusal("up", "--data", str(tmp_path), "--host", "192.0.2.1")
    assert "of 192.0.2.1 is not free (Cannot assign requested address)" in said


@pytest.mark.one_machine("it is about hotplate up")
async def test_a_data_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for question in ("up", "status"):
        said = await refusal(question, "--data", str(tmp_path / "file"))
        assert str(tmp_path / "file") in said


@pytest.mark.one_machine("it is about hotplate up")
async def test_a_question_without_a_platform_says_so(tmp_path: Path) -> None:
    said = await refusal("status", "--data", str(tmp_path / "nothing"))
    assert "no platform has run in" in said
    assert not (tmp_path / "nothing").exists(), "a question makes nothing"


@pytest.mark.one_machine("it is about hotplate up")
async def test_a_question_to_a_platform_that_has_stopped_says_so(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "endpoint.json").write_text('{"url": "http://127.0.0.1:1"}')
    said = await refusal("status", "--data", str(tmp_path))
    assert "is 'hotplate up' running?" in said


async def test_a_question_with_a_wrong_token_says_so(platform: AnyPlatform) -> None:
    said = await refusal("status", "--endpoint", platform.url, "--token", "wrong")
    assert "token" in said


@pytest.mark.parametrize("question", ["status", "logs", "events"])
async def test_a_question_about_an_unknown_deployment_says_so(
    platform: AnyPlatform, question: str
) -> None:
    said = await refusal(question, "nope", *platform.command_flags())
    assert said == "hotplate: deployment 'nope' does not exist in this organization"


SETTINGS = {
    "an unknown key": ("[platform]\nprot = 8080\n", "[platform] prot", "did you mean 'port'?"),
    "an unknown table": ("[plattform]\nport = 8080\n", "plattform", "platform"),
    "no number": ('[platform]\nport = "many"\n', "port", "'many'"),
    "out of range": ("[platform]\nport = 70000\n", "port", "65535"),
    "no TOML": ("port: 8080\n", "hotplate.toml cannot be read", "line 1"),
}


@pytest.mark.parametrize(("text", "wrong", "right"), SETTINGS.values(), ids=SETTINGS)
@pytest.mark.one_machine("it is about hotplate up")
async def test_a_setting_that_cannot_be_used_is_named(
    tmp_path: Path, text: str, wrong: str, right: str
) -> None:
    (tmp_path / "hotplate.toml").write_text(text)
    said = await refusal("up", "--data", str(tmp_path))
    assert wrong in said
    assert right in said
    assert running_in(tmp_path) == []


def running_in(folder: Path) -> list[str]:
    """Command lines of the processes that work below a folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if f"{folder}/".encode() in line:
                found.append(line.decode(errors="replace"))
    return found
