"""What the store hands out: immutable rows, with their neighbours already joined."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from functools import cached_property
from typing import Any

from hotplate.platform.spec.secret_content import SecretContent
from hotplate.serving.gateway.protocol.priority import USUAL_PRIORITY
from hotplate.serving.gateway.protocol.version_mark import VERSION

ORGANIZATION = "default"
"""The operator's own, which cannot be deleted."""


class Kind(StrEnum):
    """What a repository holds."""

    BENTO = "bento"
    MODEL = "model"


class DesiredState(StrEnum):
    """What the user asked of a deployment last."""

    RUNNING = "running"
    TERMINATED = "terminated"
    DELETED = "deleted"


class RolloutOutcome(StrEnum):
    """How the roll-out of a revision went."""

    DEPLOYING = "deploying"
    READY = "ready"
    FAILED = "failed"


class MemberRole(StrEnum):
    """What a member may do in an organization; each may all that the ones after it may."""

    ADMIN = "admin"
    DEVELOPER = "developer"
    ENDPOINT_USER = "endpoint-user"

    def is_at_least(self, other: MemberRole) -> bool:
        roles = list(MemberRole)
        return roles.index(self) <= roles.index(other)


@dataclass(frozen=True)
class Organization:
    id: int
    uid: str
    name: str
    created_at: datetime
    description: str = ""

    @property
    def owner(self) -> str:
        """What it is known by for ever. Its name may be another one's later, but for that of the
        operator's own organization, which is never deleted: installations that share a folder for
        packages know that by the same name."""
        return self.name if self.name == ORGANIZATION else self.uid

    def shown_pool(self, pool: str) -> str:
        """The name of a pool of its standbys as people know it: with its name in place of `owner`,
        which stands last."""
        own = self.owner
        return f"{pool.removesuffix(own)}{self.name}" if pool.endswith(f" {own}") else pool


@dataclass(frozen=True)
class User:
    """A person, in the organization that they act for."""

    id: int
    uid: str
    name: str
    email: str
    organization: Organization


@dataclass(frozen=True)
class Membership:
    """A person's place in an organization."""

    user: User
    role: MemberRole
    operator: bool
    """Whether the person is an operator of the installation."""
    last_seen_at: datetime | None
    """When a token or sign-in of theirs was used last in this organization, to a minute."""


@dataclass(frozen=True)
class Token:
    """An API token without its secret, which nobody can read back."""

    id: int
    uid: str
    user: User
    """Its owner, or of an organization's own token its maker; with the token's organization."""
    name: str
    description: str
    scopes: tuple[str, ...]
    expires_at: datetime | None
    created_at: datetime
    role: MemberRole = MemberRole.ADMIN
    """Its owner's in that organization, or its own."""
    is_organizations: bool = False
    """Whether it belongs to the organization, and outlives its maker's membership."""
    operator: bool = False
    """Whether it has an operator's rights: its owner is one, and an operator has made it."""
    last_used_at: datetime | None = None


@dataclass(frozen=True)
class SignIn:
    """A browser that has signed in."""

    user: User
    role: MemberRole
    expires_at: datetime
    everywhere: bool
    """Whether it is good for every organization of its user, since an operator let them in."""
    operator: bool
    scopes: tuple[str, ...]
    is_organizations: bool = False
    """Whether it is by a token that is the organization's own, and `user` only its maker."""


@dataclass(frozen=True)
class Secret:
    """A secret without its values."""

    id: int
    uid: str
    organization: Organization
    creator: User
    name: str
    description: str
    content: SecretContent
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True)
class KeyUse:
    """A key that values of secrets are encrypted with."""

    id: str
    made_at: datetime
    encrypts: bool
    """Whether what is written now is encrypted with it."""
    values: int
    """How many are encrypted with it."""


@dataclass(frozen=True)
class Repository:
    id: int
    uid: str
    organization_id: int
    kind: Kind
    name: str
    description: str
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True)
class Artifact:
    """One version of a bento or model."""

    id: int
    uid: str
    repository: Repository
    version: str
    description: str
    manifest: Mapping[str, Any]
    """As the client sent it; returned faithfully."""
    labels: tuple[Mapping[str, str], ...]
    build_at: str
    upload_status: str
    """pending | uploading | success | failed"""
    upload_finished_reason: str
    files: str
    """Digest of the cache manifest of its files; empty until they are unpacked."""
    size_bytes: int
    created_at: datetime
    updated_at: datetime
    upload_started_at: datetime | None = None
    upload_finished_at: datetime | None = None

    @property
    def tag(self) -> str:
        return f"{self.repository.name}:{self.version}"

    @cached_property
    def schema(self) -> str:
        """The JSON of its service's methods, as `/schema.json` shows it; empty = it has none. Made
        once: it is in the routes, which each step of a deployment makes."""
        schema = self.manifest.get("schema")
        return json.dumps(schema) if schema else ""

    @property
    def hugging_face(self) -> bool:
        """A model that stays at its hub: the client registers it and never uploads a byte."""
        metadata = self.manifest.get("metadata")
        return isinstance(metadata, Mapping) and metadata.get("registry") == "huggingface"

    @property
    def usable(self) -> bool:
        """Whether a deployment can be made with it."""
        return bool(self.files) or self.hugging_face or self.dev

    @property
    def dev(self) -> bool:
        """A bento of a code space, which is never packed: its files come one by one."""
        return self.manifest.get("dev") is True


@dataclass(frozen=True)
class UploadRecord:
    """A tar of an artifact whose parts are arriving."""

    id: str
    artifact: Artifact
    created_at: datetime


@dataclass(frozen=True)
class Revision:
    """One immutable (bento, config) of a deployment."""

    id: int
    uid: str
    number: int
    config: Mapping[str, Any]
    """`access_authorization`, `envs`, `secrets`, `services` as in the request, every service of
    the bento named and every default filled in. Labels are the deployment's."""
    bento: Artifact
    outcome: RolloutOutcome
    reason: str
    log_tail: tuple[str, ...]
    ports: Mapping[str, int]
    """Gateway port per service that others of this revision depend on."""
    created_at: datetime
    by: str = ""
    """The name of whoever asked for it; empty = nobody has kept it."""
    paused: bool = False
    """Its roll-out is not to go on."""
    progress: Mapping[str, Any] = field(default_factory=dict)
    """How far its roll-out has come: `step`, `step_at`, `phase`, `since` (Unix seconds)."""


@dataclass(frozen=True)
class Deployment:
    id: int
    uid: str
    organization: Organization
    creator: User
    name: str
    port: int
    wanted: DesiredState
    status: str
    """A BentoCloud status (`deploying`, `running`, `scaled-to-zero`, …), kept by the controller."""
    reason: str
    """One sentence about the status."""
    labels: tuple[Mapping[str, str], ...]
    latest: Revision
    serving: Revision | None
    """The revision that answers now; None before the first one is ready."""
    created_at: datetime
    updated_at: datetime
    dev: bool = False
    """Whether it is a code space: `bentoml code` sends its files one by one."""
    host: str = ""
    """By which whoever asked for its latest revision has reached the API; empty = not known."""
    parent_id: int | None = None
    """The deployment of which it is a version."""
    canary: Mapping[str, Any] = field(default_factory=dict)
    """`route_type`, `route_by`, `weights` and `parts` by version; empty = it has no canary."""
    versions: tuple[Deployment, ...] = ()
    """The versions of its canary."""

    @property
    def version(self) -> str:
        """Its id, where it is a version of another deployment's canary; else empty."""
        return self.name.partition(VERSION)[2]


@dataclass(frozen=True)
class DecisionRecord:
    """One scaling decision that changed what was wanted, or why."""

    at: datetime
    revision: int
    service: str
    replicas: int
    desired: int
    demand: int
    reason: str
    inputs: Mapping[str, Any] = field(default_factory=dict)
    """What it was made from: `in_flight`, `queued`, `service_s`, `ready`, `starting`, `heard`, and
    how many `slots` a replica has, in a sentence."""


@dataclass(frozen=True)
class DemandRecord:
    """What a decider was told of its service, and what there was then."""

    at: datetime
    revision: int
    service: str
    arrived: int
    """Requests that came since the record before."""
    in_flight: int
    queued: int
    service_s: float
    """Mean time of a request in its replica; 0 = not known."""
    ready: int
    starting: int


@dataclass(frozen=True)
class EventRecord:
    """Something that happened to a deployment, in a sentence."""

    at: datetime
    deployment: str
    kind: str
    """e.g. Created, RolloutReady, RolloutFailed, ScaledUp, ReplicaCrashed, Pending"""
    message: str


@dataclass(frozen=True)
class ColdStart:
    """The record of one replica's start."""

    replica: str
    revision: int
    service: str
    created_at: datetime
    """When it was wanted: made, or after an end of its own when the pause was over."""
    ready_at: datetime | None
    phases: tuple[Mapping[str, Any], ...] = field(default_factory=tuple)
    """[{"name", "start", "end", "share_s"}], Unix seconds."""
    pool: str = ""
    """Which pool's standbys it could start from; empty = none's, or that is not known."""
    forked: bool = False
    """Whether a template of that pool has forked it."""


@dataclass(frozen=True)
class Task:
    """A task as its submitter may see it."""

    id: str
    status: str
    """A `Status` of `store/task_state.py`."""
    created_at: datetime
    executed_at: datetime | None
    completed_at: datetime | None


@dataclass(frozen=True)
class Turn:
    """Whose a task is in the queue, how urgent, and of which version, as its submission said."""

    organization: str = ""
    """Of callers, where they are trusted to name one."""
    priority: int = USUAL_PRIORITY
    """RFC 9218's urgency, 0 to 7."""
    version: str = ""
    """The canary's version that was chosen for it; empty = `main`, or there was no canary."""


@dataclass(frozen=True)
class OfferedTask:
    """A task that is to be run by a gateway."""

    id: str
    route: str
    """`organization/deployment`"""
    gateway: str
    """The one that had started it; empty = nobody."""
    turn: Turn


@dataclass(frozen=True)
class TaskContent:
    """What was sent to a task, or what it answered."""

    head: bytes
    body: bytes | None
    """None = it is too large for a row, and is this part of the task's in the blob store."""
    size_bytes: int
    part: int = 0


@dataclass(frozen=True)
class Term:
    """Which control plane acts, as its row was at one moment of the database's clock."""

    epoch: int = 0
    """Grows by one with each that begins to act; 0 = none has yet."""
    holder: str = ""
    """The life of a process, by an id of its own; empty = it has given the term up."""
    url: str = ""
    """Where the others reach it."""
    process: str = ""
    """Its process id and start time."""
    place: str = ""
    """The machine and the data directory whose replicas it has."""
    renewals: int = 0
    left_s: float = 0.0
    """Until it ends, unless it is renewed."""
    rival_s: float = math.inf
    """How long ago another control plane has looked."""
