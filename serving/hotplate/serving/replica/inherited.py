"""Which of the host's environment variables reach code that users wrote; pure.

An allow-list: whoever runs the platform has credentials in the environment, and a bento's code
(its build scripts too) must not see them.
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
PLACES = frozenset(["HOME", "TMPDIR", "XDG_CACHE_HOME", "HF_HOME", "HF_HUB_CACHE"])
"""Of these, folders of whoever runs the platform: of no use where they are not to be seen."""
CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
"""The authorities that everybody here trusts: files and folders that are shown to all."""
INSTALLER_PREFIXES = ("UV_", "PIP_")
"""Package indexes and their settings: for building an environment only."""


def for_replica(environ: Mapping[str, str], shown: Sequence[Path] | None = None) -> dict[str, str]:
    """What a replica's process inherits; `shown` is what it sees of its host's folders, None = all
    of them."""
    return _allowed(environ, PREFIXES, shown)


def for_build(environ: Mapping[str, str], shown: Sequence[Path] | None = None) -> dict[str, str]:
    """What the building of an environment inherits."""
    return _allowed(environ, PREFIXES + INSTALLER_PREFIXES, shown)


def certificates(environ: Mapping[str, str]) -> list[Path]:
    """The files and folders that it names; they need not be there."""
    return [Path(environ[name]) for name in CERTIFICATES if environ.get(name)]


def _allowed(
    environ: Mapping[str, str], prefixes: tuple[str, ...], shown: Sequence[Path] | None
) -> dict[str, str]:
    return {
        name: value
        for name, value in environ.items()
        if (name in NAMES or name.startswith(prefixes))
        and (shown is None or name not in PLACES or _is_below(Path(value), shown))
    }


def _is_below(path: Path, folders: Sequence[Path]) -> bool:
    return any(path.is_relative_to(folder) for folder in folders)
