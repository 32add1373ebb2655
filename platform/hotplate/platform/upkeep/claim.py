"""Whose a blob store is: `hotplate.json` in it names one installation.

Several control planes of one installation have one database, and so one id. Another installation is
refused: neither could know what the other one wants of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Set
from datetime import UTC, datetime
from typing import Any

from hotplate.cache.store.blobs import BlobStore
from hotplate.platform.errors import CannotStart
from hotplate.platform.upkeep.garbage import FolderClaim

KEY = "installation"
"""Under which the store keeps what the id is made of: a backup does not take it along."""


def claim(
    blobs: BlobStore, installation: str, named: Callable[[], Set[str]], *, shared: bool
) -> None:
    """Make the store this installation's, unless it is. `named` says which manifests are its own;
    a `shared` one lies where others may keep their files too.

    Raises CannotStart for another installation's. A store of before there were claims may have
    another one's files, so of what is there only what is named here is taken for our own.
    """
    found = blobs.contents.claim()
    if found is not None and (not shared or found.get("installation") == installation):
        if found.get("installation") == installation:
            return
        found = None  # the data directory's own folder: its database was made anew
    if found is not None:
        raise CannotStart(
            f"the files at {blobs.url} (blobs_url) are another installation's, which has the id "
            f"{str(found.get('installation'))[:32]!r}: choose a folder of your own below it; or, "
            "where that installation is gone for good, remove hotplate.json there"
        )
    content = {"installation": installation, "claimed_at": datetime.now(UTC).isoformat()}
    if shared and _has_files(blobs):
        own = sorted(named())
        since = blobs.contents.put_claim({**content, "since": None, "own": own})
        blobs.contents.put_claim({**content, "since": since, "own": own})
    else:
        blobs.contents.put_claim(content)
    if not is_ours(blobs, installation):  # two have claimed it at once
        raise CannotStart(
            f"another installation has just claimed the files at {blobs.url} (blobs_url): choose a "
            "folder of your own below it"
        )


def is_ours(blobs: BlobStore, installation: str) -> bool:
    return (blobs.contents.claim() or {}).get("installation") == installation


def ownership(content: Mapping[str, Any]) -> FolderClaim:
    """What a claim says of files from before it."""
    if "own" not in content:
        return FolderClaim()
    since = content.get("since")
    # A kill came between: nothing that is there now is known to be new.
    return FolderClaim(math.inf if since is None else float(since), frozenset(content["own"]))


def _has_files(blobs: BlobStore) -> bool:
    there = blobs.contents.listing()
    return bool(there.manifests or there.blobs or there.notes or there.uploads)
