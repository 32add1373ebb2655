"""What of a blob store goes, and why; pure.

What is wanted stays, with all that it consists of: manifests that the store or a running thing
names, those of notes that somebody uses, and the blobs of each of them. So does what is younger
than the grace, as what nobody names may just be arriving; and what lay there before this
installation claimed the folder, unless it is known to be its own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Set
from dataclasses import dataclass, field

from hotplate.cache.store.contents import Listing, StoredNote
from hotplate.cache.store.storage import StoredObject

Reasons = Mapping[str, str]


@dataclass(frozen=True)
class Wanted:
    """What is to stay."""

    manifests: Set[str]
    """Those that versions, kept revisions, code spaces and running things name."""
    notes: Set[str] = frozenset()
    """Names of the notes that this node uses."""
    uploads: Set[str] = frozenset()
    """Ids of uploads that are under way."""


@dataclass(frozen=True)
class FolderClaim:
    """Since when a folder is the installation's."""

    since: float = -math.inf
    """Unix seconds by the storage's clock; what is older may be somebody else's."""
    own: Set[str] = frozenset()
    """Manifests that are older and its own all the same."""


@dataclass(frozen=True)
class Garbage:
    """What goes, each with the reason."""

    manifests: Reasons = field(default_factory=dict)
    blobs: Reasons = field(default_factory=dict)
    notes: Reasons = field(default_factory=dict)
    uploads: Reasons = field(default_factory=dict)
    incoming: Reasons = field(default_factory=dict)

    def __bool__(self) -> bool:
        return any((self.manifests, self.blobs, self.notes, self.uploads, self.incoming))


@dataclass(frozen=True)
class Stay:
    """Which notes and manifests stay: the blobs of these have to be known before any blob goes."""

    notes: Set[str]
    manifests: Set[str]


@dataclass(frozen=True)
class Rules:
    """`written_before` is the grace ago, Unix seconds by the storage's clock."""

    written_before: float
    claim: FolderClaim = FolderClaim()

    def is_young(self, stored: StoredObject) -> bool:
        return stored.modified_at >= self.written_before

    def may_be_foreign(self, stored: StoredObject) -> bool:
        return stored.modified_at < self.claim.since


def staying(there: Listing, wanted: Wanted, rules: Rules) -> Stay:
    """What stays, of notes and manifests."""
    notes = {
        name
        for name, note in there.notes.items()
        if name in wanted.notes
        or rules.is_young(note.stored)
        or rules.may_be_foreign(note.stored)
        or _bentos(note) & wanted.manifests
    }
    named = {str(there.notes[name].content.get("manifest", "")) for name in notes}
    manifests = {
        digest
        for digest, stored in there.manifests.items()
        if digest in wanted.manifests
        or digest in named
        or rules.is_young(stored)
        or (rules.may_be_foreign(stored) and digest not in rules.claim.own)
    }
    # Those too that came after the listing: their blobs may have lain here before it.
    return Stay(notes, manifests | wanted.manifests | named - {""})


def garbage(
    there: Listing, wanted: Wanted, rules: Rules, blobs_of: Mapping[str, Set[str]]
) -> Garbage:
    """What goes. `blobs_of` has the blobs of every manifest that stays; and of those that go, where
    the folder may have somebody else's."""
    stay = staying(there, wanted, rules)
    manifests = there.manifests.keys() - stay.manifests
    kept = frozenset[str]().union(*(blobs_of.get(one, frozenset()) for one in stay.manifests))
    own = frozenset[str]().union(*(blobs_of.get(one, frozenset()) for one in manifests))
    return Garbage(
        manifests=dict.fromkeys(manifests, "no version, kept revision or running replica names it"),
        blobs={
            digest: "it belongs to no manifest that stays"
            for digest, stored in there.blobs.items()
            if digest not in kept
            and not rules.is_young(stored)
            and (digest in own or not rules.may_be_foreign(stored))
        },
        notes=dict.fromkeys(there.notes.keys() - stay.notes, "no deployment uses it"),
        uploads={
            upload: "the upload is over, or its version is gone"
            for upload, stored in there.uploads.items()
            if upload not in wanted.uploads
            and not upload.startswith(OF_TASKS)
            and not rules.is_young(stored)
            and not rules.may_be_foreign(stored)
        },
        incoming={
            name: "whoever wrote it was killed"
            for name, stored in there.incoming.items()
            if not rules.is_young(stored) and not rules.may_be_foreign(stored)
        },
    )


OF_TASKS = "task-"
"""Parts of tasks go with their tasks."""


def _bentos(note: StoredNote) -> set[str]:
    bentos = note.content.get("bentos")
    return set(map(str, bentos)) if isinstance(bentos, list) else set()
