"""The lowest layer: Debian's packages of `debian.txt`, unpacked without installing them.

They come by this machine's apt, which checks their digests against signed lists, so neither root
nor Docker is needed, and the versions are those of today's security updates. What packages would do
when they are installed is done here, as far as an image needs it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.errors import CannotRunHere, TestClusterError
from tests.cluster.images.interpreter import compile_below
from tests.cluster.images.layers import Layer
from tests.cluster.layout import user_cache

USER = "10001"
_LIST = Path(__file__).with_name("debian.txt")
_MERGED = ("bin", "lib", "lib64", "sbin")
"""Links to the folders of these names below /usr, where packages may say either."""
_DROPPED = ("usr/share/man", "usr/share/info", "usr/share/locale", "usr/share/lintian")
_NAMES = {
    "etc/passwd": f"root:x:0:0::/root:/bin/sh\nhotplate:x:{USER}:{USER}::/scratch:/bin/sh\n",
    "etc/group": f"root:x:0:\nhotplate:x:{USER}:\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\nprotocols: files\n",
}


@dataclass(frozen=True, slots=True)
class Package:
    """One, as apt would download it."""

    file: str
    digest: str

    @property
    def place(self) -> Path:
        """Where it is kept."""
        return user_cache("packages") / f"{self.digest}.deb"


def base_layer() -> Layer:
    """CannotRunHere where there is no apt that knows the packages."""
    packages = _packages()
    return Layer("debian", [package.digest for package in packages], lambda r: _fill(r, packages))


def _packages() -> list[Package]:
    names = [line for line in _LIST.read_text().splitlines() if not line.startswith("#")]
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        raise CannotRunHere("images are made of Debian's packages; make them where there is apt")
    said = _apt("--print-uris", "download", *names, folder=Path("/"))
    found = [line.split() for line in said.splitlines() if line.startswith("'")]
    if len(found) != len(names):
        raise CannotRunHere(
            f"apt has {len(found)} of {len(names)} packages of Debian 12; run apt-get update there"
        )
    return [Package(file, digest.removeprefix("SHA256:")) for _, file, _, digest in found]


def _fill(root: Path, packages: list[Package]) -> None:
    _fetch([package for package in packages if not package.place.exists()])
    for name in _MERGED:
        (root / "usr" / name).mkdir(parents=True)
        (root / name).symlink_to(f"usr/{name}")
    for package in packages:
        _unpack(package.place, root)
    for name in _DROPPED:
        shutil.rmtree(root / name, ignore_errors=True)
    _leave_copyrights(root / "usr/share/doc")
    for name, text in _NAMES.items():
        (root / name).write_text(text)
    authorities = sorted((root / "usr/share/ca-certificates").rglob("*.crt"))
    bundle = root / "etc/ssl/certs/ca-certificates.crt"
    bundle.parent.mkdir(parents=True, exist_ok=True)
    bundle.write_bytes(b"".join(authority.read_bytes() for authority in authorities))
    (root / "usr/bin/python3").symlink_to("python3.11")
    compile_below(root / "usr/lib/python3.11", root, root)


def _leave_copyrights(documents: Path) -> None:
    """What a licence wants to be passed on stays; packages of one source link to one folder."""
    for folder in documents.iterdir():
        for path in [] if folder.is_symlink() else sorted(folder.iterdir()):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            elif path.name != "copyright":
                path.unlink()


def _fetch(packages: list[Package]) -> None:
    if not packages:
        return
    folder = packages[0].place.parent
    folder.mkdir(parents=True, exist_ok=True)
    names = [package.file.replace("_", "=", 1).rpartition("_")[0] for package in packages]
    _apt("download", *(name.replace("%3a", ":") for name in names), folder=folder)
    for package in packages:
        downloaded = folder / package.file
        content = downloaded.read_bytes()
        if hashlib.sha256(content).hexdigest() != package.digest:
            raise TestClusterError(f"{package.file} is not what apt said that it would be")
        downloaded.rename(package.place)


def _unpack(package: Path, root: Path) -> None:
    """The files, and what scanners read of a package that no dpkg has installed."""
    extracting = ["tar", "--extract", "--keep-directory-symlink", "--no-same-owner"]
    files = subprocess.run(["dpkg-deb", "--fsys-tarfile", package], check=True, capture_output=True)
    subprocess.run([*extracting, f"--directory={root}"], check=True, input=files.stdout)
    control = subprocess.run(
        ["dpkg-deb", "--field", str(package)], check=True, capture_output=True, text=True
    ).stdout
    name = next(line for line in control.splitlines() if line.startswith("Package: ")).split()[1]
    status = root / "var/lib/dpkg/status.d" / name
    status.parent.mkdir(parents=True, exist_ok=True)
    status.write_text(control)


def _apt(*arguments: str, folder: Path) -> str:
    done = subprocess.run(
        ["apt-get", "--quiet=2", *arguments],
        cwd=folder,
        env={**os.environ, "LC_ALL": "C"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        words = done.stderr.strip().splitlines() or ["no word"]
        raise CannotRunHere(f"apt-get cannot give Debian 12's packages: {words[-1]}")
    return done.stdout
