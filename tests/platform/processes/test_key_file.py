from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from hotplate.platform.errors import CannotStart, SecretsUnreadable
from hotplate.platform.processes.key_file import KeyFile
from hotplate.platform.store.keyring import Keyring, SecretKey


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keys" / "secret-keys"


def test_the_first_start_makes_a_key_and_the_next_ones_read_it(path: Path) -> None:
    first, second = KeyFile(path), KeyFile(path)
    first.begin(0)
    second.begin(3)
    assert first.keyring() == second.keyring()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_key_that_another_control_plane_makes_is_seen(path: Path) -> None:
    first, second = KeyFile(path), KeyFile(path)
    first.begin(0)
    both = Keyring((*second.keyring().keys, SecretKey.new()))
    with second.held(alone=True):
        second.keep(both)
    with first.held():
        assert first.keyring() == both


def test_a_missing_file_is_never_made_while_something_is_encrypted(path: Path) -> None:
    with pytest.raises(
        CannotStart, match=r"secret-keys is missing, .* with 12 values\) .* put it back"
    ):
        KeyFile(path).begin(12)
    assert not path.exists()


def cut(path: Path) -> None:
    path.write_text(path.read_text()[:50])


def empty(path: Path) -> None:
    path.write_text("")


def open_to_others(path: Path) -> None:
    path.chmod(0o644)


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (cut, "cannot be used .*no list of keys"),
        (empty, "cannot be used .*no list of keys"),
        (open_to_others, r"can be read by others \(mode 644\); 'chmod 600"),
        (folder, "can be read by others|cannot be used"),
    ],
)
def test_one_that_cannot_be_used_is_said_and_left_as_it_is(
    path: Path, harm: Callable[[Path], None], said: str
) -> None:
    KeyFile(path).begin(0)
    harm(path)
    before = path.read_bytes() if path.is_file() else b""
    with pytest.raises(CannotStart, match=said):
        KeyFile(path).begin(1)
    with pytest.raises(CannotStart, match=said):
        KeyFile(path).begin(0)
    assert (path.read_bytes() if path.is_file() else b"") == before


def test_one_that_cannot_be_written_stays_as_it_is(path: Path) -> None:
    file = KeyFile(path)
    file.begin(0)
    before = file.keyring()
    os.mkdir(path.with_name(".secret-keys.new"))  # even root cannot write there
    with pytest.raises(SecretsUnreadable, match="cannot be written"):
        file.keep(Keyring((*before.keys, SecretKey.new())))
    assert KeyFile(path).keyring() == before
