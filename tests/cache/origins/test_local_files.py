from __future__ import annotations

import os
from pathlib import Path

import pytest

from hotplate.cache.errors import UnknownUrl, VersionChanged
from hotplate.cache.origins.local_files import LocalFiles


def test_a_file_that_is_replaced_by_one_of_its_size_is_another(tmp_path: Path) -> None:
    path, files, got = tmp_path / "model.safetensors", LocalFiles(), bytearray(3)
    view = memoryview(got)
    path.write_bytes(b"first")
    (version,) = files.find(f"file://{path}").versions
    source = files.source(version)
    source.read_into(1, view)
    assert got == b"irs"
    path.write_bytes(b"other")
    os.utime(path, (1e9, 1e9))
    with pytest.raises(VersionChanged, match="was changed while it was fetched"):
        source.read_into(1, view)
    path.unlink()
    with pytest.raises(UnknownUrl, match="is no longer there"):
        source.read_into(1, view)
