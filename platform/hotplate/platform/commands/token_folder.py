"""`--tokens DIR`: the folder with a cluster's tokens, as the chart mounts its Secret."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

from hotplate.platform.commands import secret_flags

ADMIN, CLUSTER = "admin-token", "cluster-token"
"""Names of its files."""


def add_tokens(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--tokens",
        metavar="DIR",
        help=f"folder with the files {ADMIN} and {CLUSTER}; of a platform on Kubernetes",
    )


def tokens_of(folder: str | None) -> Mapping[str, str]:
    """By the name of their file; none where no folder is named. Raises BadSetting."""
    if folder is None:
        return {}
    return {
        name: secret_flags.read(str(Path(folder) / name), "--tokens") for name in (ADMIN, CLUSTER)
    }
