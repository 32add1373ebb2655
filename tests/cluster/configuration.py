"""Files that daemons read. Some end when theirs is written, so only what changes is written."""

from __future__ import annotations

from pathlib import Path

import yaml

from tests.cluster.authority import Authority
from tests.cluster.layout import Layout


def write_kubeconfig(layout: Layout, place: Path, user: str, group: str) -> Path:
    """What `user` of `group` needs to ask the API server."""
    authority = Authority(layout.secrets)
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": "hotplate-test",
                "cluster": {
                    "server": layout.api,
                    "certificate-authority": str(authority.certificate),
                },
            }
        ],
        "users": [{"name": user, "user": {"token": authority.token(user, group)}}],
        "contexts": [
            {"name": "hotplate-test", "context": {"cluster": "hotplate-test", "user": user}}
        ],
        "current-context": "hotplate-test",
    }
    return write(place, yaml.safe_dump(config))


def write(place: Path, text: str) -> Path:
    """Writes the file unless it has that text already; its owner alone may read it."""
    if not place.exists() or place.read_text() != text:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.touch(mode=0o600)
        place.write_text(text)
    return place
