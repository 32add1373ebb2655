"""Which of the host's environment variables reach code that users wrote; pure.

An allow-list: the platform's user has credentials in the environment, and a bento's code (its build
scripts too) must not see them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

NAMES = frozenset(
    [
        "PATH",
        "HOME",
        "USER",
        "LOGNAME",
        "SHELL",
        "LANG",
        "LANGUAGE",
        "TZ",
        "TMPDIR",
        "LD_LIBRARY_PATH",
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
        "REQUESTS_CA_BUNDLE",
        "CURL_CA_BUNDLE",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "ALL_PROXY",
        "NO_PROXY",
        "http_proxy",
        "https_proxy",
        "all_proxy",
        "no_proxy",
        "XDG_CACHE_HOME",
        "HF_HOME",
        "HF_HUB_CACHE",
        "HF_ENDPOINT",
        "HF_HUB_OFFLINE",
        "CUDA_HOME",
        "CUDA_PATH",
        "CUDA_DEVICE_ORDER",
    ]
)
PREFIXES = ("LC_", "NVIDIA_")
PROXIES = frozenset(name for name in NAMES if name.lower().endswith("_proxy"))
OTHER_PYTHONS = ("UV_PYTHON", "UV_SYSTEM_PYTHON", "UV_MANAGED_PYTHON", "PIP_PYTHON")
"""They choose an interpreter: in a pod that is the image's."""
PLACES = frozenset(["HOME", "TMPDIR", "XDG_CACHE_HOME", "HF_HOME", "HF_HUB_CACHE"])
"""Those of them that name folders of the platform's user; useless where these are not visible."""
CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
"""The certificate authorities of this machine: files and folders that every replica may read."""
INSTALLER_PREFIXES = ("UV_", "PIP_")
"""Package indexes and their settings: for building an environment only."""


def for_replica(
    environ: Mapping[str, str], visible: Sequence[Path] | None = None
) -> dict[str, str]:
    """The variables that a replica inherits; `visible` are the host's folders that it sees, None =
    all."""
    return _allowed(environ, PREFIXES, visible)


def for_build(environ: Mapping[str, str], visible: Sequence[Path] | None = None) -> dict[str, str]:
    """The variables that the build of an environment inherits."""
    return _allowed(environ, PREFIXES + INSTALLER_PREFIXES, visible)


def for_pod_build(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that builds in pods inherit of the control plane's: package indexes, proxies
    and how these are asked. Whatever names a place of this machine is of no use there."""
    return {
        name: value
        for name, value in environ.items()
        if (name in PROXIES or name.startswith(INSTALLER_PREFIXES))
        and not name.startswith(OTHER_PYTHONS)
        and not value.startswith(("/", "~", ".", "file:"))
    }


def certificates(environ: Mapping[str, str]) -> list[Path]:
    """The files and folders that the variables name; they need not exist."""
    return [Path(environ[name]) for name in CERTIFICATES if environ.get(name)]


def _allowed(
    environ: Mapping[str, str], prefixes: tuple[str, ...], visible: Sequence[Path] | None
) -> dict[str, str]:
    return {
        name: value
        for name, value in environ.items()
        if (name in NAMES or name.startswith(prefixes))
        and (visible is None or name not in PLACES or _is_below(Path(value), visible))
    }


def _is_below(path: Path, folders: Sequence[Path]) -> bool:
    return any(path.is_relative_to(folder) for folder in folders)
