"""What environments share of their bytecode, and what becomes of files that cannot be compiled."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hotplate.serving.replica.environments import bytecode

SOURCE = "def where():\n    return where.__code__.co_filename\n"


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    return tmp_path / "kept"


def site_of(environment: Path, **sources: str) -> Path:
    """The packages of an environment that has these modules."""
    site = environment / "lib" / "python3" / "site-packages"
    site.mkdir(parents=True)
    for name, source in sources.items():
        (site / f"{name}.py").write_text(source)
    return site


def compiled(environment: Path, kept: Path) -> set[str]:
    """Compiles an environment as a build does; the names of the modules that are compiled then."""
    program = Path(bytecode.__file__).read_text()
    command = [sys.executable, "-I", "-S", "-c", program, str(environment), str(kept)]
    subprocess.run(command, check=True, timeout=60)
    found = environment.glob("lib/python3/site-packages/__pycache__/*.pyc")
    return {path.name.partition(".")[0] for path in found}


def printed(site: Path, code: str) -> str:
    """What a program prints that imports from there, and only what is compiled already."""
    program = f"import sys; sys.path.insert(0, {str(site)!r}); sys.dont_write_bytecode = True; "
    command = [sys.executable, "-I", "-c", program + code]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_what_one_environment_has_compiled_the_next_one_uses(tmp_path: Path, kept: Path) -> None:
    first = site_of(tmp_path / "first", shared=SOURCE)
    assert compiled(tmp_path / "first", kept) == {"shared"}
    (file,) = filter(Path.is_file, kept.rglob("*"))
    code = bytecode.read(str(file)) or b""
    bytecode.keep(str(file), code.replace(b"where", b"other"))

    second = site_of(tmp_path / "second", shared=SOURCE, own="x = 1\n")
    os.utime(second / "shared.py", (1, 1))
    assert compiled(tmp_path / "second", kept) == {"shared", "own"}
    assert printed(second, "import shared; print(hasattr(shared, 'other'))") == "True"
    assert printed(first, "import shared; print(hasattr(shared, 'other'))") == "False"


def test_code_of_another_environment_knows_its_file(tmp_path: Path, kept: Path) -> None:
    for name in ("first", "second"):
        site = site_of(tmp_path / name, shared=SOURCE)
        compiled(tmp_path / name, kept)
        assert printed(site, "import shared; print(shared.where())") == str(site / "shared.py")
        cached = "import shared; print(shared.__spec__.cached)"
        assert Path(printed(site, cached)).stat().st_size > bytecode.HEADER_BYTES


def test_a_source_that_has_changed_is_compiled_again(tmp_path: Path, kept: Path) -> None:
    site_of(tmp_path / "first", shared="x = 1\n")
    compiled(tmp_path / "first", kept)
    second = site_of(tmp_path / "second", shared="x = 2\n")
    compiled(tmp_path / "second", kept)
    assert printed(second, "import shared; print(shared.x)") == "2"


@pytest.mark.parametrize("left", [0, 10, 60], ids=["nothing", "half a digest", "half of it"])
def test_what_a_power_cut_has_damaged_is_not_used(tmp_path: Path, kept: Path, left: int) -> None:
    site_of(tmp_path / "first", shared=SOURCE)
    compiled(tmp_path / "first", kept)
    (file,) = filter(Path.is_file, kept.rglob("*"))
    file.write_bytes(file.read_bytes()[:left])
    second = site_of(tmp_path / "second", shared=SOURCE)
    assert compiled(tmp_path / "second", kept) == {"shared"}
    assert printed(second, "import shared; print(bool(shared.where()))") == "True"
    assert bytecode.read(str(file)), "it is kept again"


def test_what_is_no_python_or_no_file_is_left_out(tmp_path: Path, kept: Path) -> None:
    site = site_of(tmp_path / "it", good="x = 1\n", template="{% if %}\n")
    (site / "binary.py").write_bytes(b"\0\xff")
    (site / "folder.py").mkdir()
    os.mkfifo(site / "pipe.py")
    (site / "link.py").symlink_to("/dev/zero")
    (site / "loop").symlink_to(site)
    assert compiled(tmp_path / "it", kept) == {"good"}


def test_folders_may_lie_deeper_than_paths_are_long(tmp_path: Path, kept: Path) -> None:
    site = site_of(tmp_path / "it", good="x = 1\n")
    deep = os.open(site, os.O_RDONLY)
    for _ in range(1200):
        os.mkdir("deep", dir_fd=deep)
        above, deep = deep, os.open("deep", os.O_RDONLY, dir_fd=deep)
        os.close(above)
    os.close(deep)
    try:
        assert compiled(tmp_path / "it", kept) == {"good"}
    finally:
        subprocess.run(["rm", "-rf", site], check=True)


def test_without_room_to_keep_anything_all_is_compiled(tmp_path: Path, kept: Path) -> None:
    kept.write_text("a file where a folder should be")
    site_of(tmp_path / "it", one="x = 1\n", two="x = 2\n")
    assert compiled(tmp_path / "it", kept) == {"one", "two"}
