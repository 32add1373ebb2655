"""Our own routes, each with what it takes and answers. A test holds it to those that there are.

Schemas say what is always there; what a schema does not name may be there too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hotplate.autoscaler.sharing.amounts import Amounts
from hotplate.autoscaler.simulator.policies import POLICIES
from hotplate.deploy.standbys import StandbySettings, StandbyView
from hotplate.platform.api.openapi.figures import (
    COST_QUERY,
    COSTS,
    COUNTS,
    MODEL,
    RATES,
    SERIES,
    STEPS,
    TOTALS,
)
from hotplate.platform.api.openapi.schemas import (
    ANYTHING,
    FLAG,
    MOMENT,
    NUMBER,
    TEXT,
    WHOLE,
    Schema,
    many,
    mapping,
    members,
    null_or,
    of_record,
    one_of,
    optional,
    page,
)
from hotplate.platform.spec.deployment_call import METHODS
from hotplate.platform.store.audit import AuditLine
from hotplate.platform.store.quotas import LIMITS
from hotplate.platform.store.records import (
    ColdStart,
    DecisionRecord,
    EventRecord,
    MemberRole,
)


@dataclass(frozen=True)
class Operation:
    """One route."""

    about: str
    answer: Schema
    query: Mapping[str, Schema] = field(default_factory=dict)
    body: Schema | None = None
    file: str = ""
    """The media type in which the same may be asked for; empty = in none."""
    media: str = "application/json"
    """Of the answer."""
    passes_on: bool = False
    """Whether it answers as somebody else does, with whichever status."""


ROOT = "/api/v1/hotplate"
COUNT = {"count": WHOLE | {"minimum": 0, "maximum": 1000}}
FORCE = {"force": one_of(["true", "false"])}
ROLE = one_of([role.value for role in MemberRole])

LIVE = members(services=many(ANYTHING), replicas=many(members(id=TEXT)))
SUMMARY = members(
    name=TEXT,
    status=TEXT,
    reason=TEXT,
    wanted=TEXT,
    url=TEXT,
    bento=TEXT,
    revision=WHOLE,
    serving=null_or(WHOLE),
    labels=many(members(key=TEXT, value=TEXT)),
    created_at=MOMENT,
    live=LIVE,
    rates=RATES,
    totals=members(**COUNTS, last_cold_start_s=null_or(NUMBER)),
)
DEPLOYMENT = members(
    **SUMMARY["properties"],
    config=ANYTHING,
    canary=null_or(members(route_type=TEXT, route_by=TEXT, versions=mapping(ANYTHING))),
    revisions=many(
        members(
            number=WHOLE,
            bento=TEXT,
            outcome=TEXT,
            reason=TEXT,
            log_tail=many(TEXT),
            serving=FLAG,
            created_at=MOMENT,
        )
    ),
    decisions=many(of_record(DecisionRecord)),
    events=many(of_record(EventRecord)),
    tasks=mapping(WHOLE),
    learnt=mapping(ANYTHING),
)
_LIMITS = {name: null_or(NUMBER) for name in LIMITS}
QUOTA = members(
    organization=TEXT,
    weight=NUMBER,
    priority=WHOLE,
    limit=members(**_LIMITS),
    used=members(**dict.fromkeys(Amounts._fields, NUMBER)),
)
ORGANIZATION = members(
    name=TEXT,
    description=TEXT,
    created_at=MOMENT,
    members=WHOLE,
    deployments=WHOLE,
    quota=QUOTA,
)
MEMBER = members(name=TEXT, email=TEXT, role=ROLE, operator=FLAG, last_seen_at=null_or(MOMENT))
KEYS = page(members(id=TEXT, made_at=MOMENT, encrypts=FLAG, values=WHOLE))
STANDBY = members(
    settings=of_record(StandbySettings),
    set=many(TEXT),
    budget_bytes=NUMBER,
    memory_bytes=NUMBER,
    pools=many(of_record(StandbyView)),
)
AMOUNTS = members(cpus=NUMBER, memory_bytes=NUMBER, gpus=NUMBER)
PLATFORM = members(
    roles=many(members(name=TEXT)),
    disks=many(members(path=TEXT, free_bytes=WHOLE, total_bytes=WHOLE)),
    nodes=many(
        members(name=TEXT, in_all=AMOUNTS, taken=AMOUNTS, cpus=NUMBER, labels=mapping(TEXT))
    ),
    gpus=members(in_all=NUMBER, free=NUMBER),
    short=many(TEXT),
    walls=members(up=FLAG, why=TEXT),
)

ROLLOUT = members(
    **{"from": null_or(WHOLE)},
    to=WHOLE,
    strategy=TEXT,
    phase=one_of(["none", "starting", "shifting", "paused", "draining", "done", "stopped"]),
    reason=TEXT,
    since=MOMENT,
    versions=many(
        members(
            version=TEXT,
            revision=WHOLE,
            bento=TEXT,
            weight=NUMBER,
            share=NUMBER,
            wanted=WHOLE,
            ready=WHOLE,
            answers=mapping(WHOLE),
            answered=WHOLE,
            failed=WHOLE,
        )
    ),
)
REVISION = members(
    number=WHOLE,
    created_at=MOMENT,
    by=TEXT,
    bento=TEXT,
    config=ANYTHING,
    outcome=TEXT,
    reason=TEXT,
    serving=FLAG,
)
ACTIONS = ("undo", "restart", "pause", "resume", "abort", "promote")

_ONE = f"{ROOT}/deployments/{{name}}"
_ORGANIZATION = f"{ROOT}/organizations/{{organization}}"
_MEMBER = f"{_ORGANIZATION}/members/{{name}}"
_USER = f"{ROOT}/users/{{name}}"

OPERATIONS: dict[tuple[str, str], Operation] = {
    ("GET", "/healthz"): Operation(
        "Whether the platform serves, and whether this control plane is the one that acts.",
        members(status=TEXT, leader=FLAG, epoch=NUMBER),
    ),
    ("GET", "/readyz"): Operation("Whether the API can be asked.", members(status=TEXT)),
    ("GET", "/openapi.json"): Operation("This document.", members(openapi=TEXT, paths=ANYTHING)),
    ("GET", f"{ROOT}/deployments"): Operation("All deployments, newest first.", many(SUMMARY)),
    ("GET", _ONE): Operation("A deployment, and what was decided on it lately.", DEPLOYMENT),
    ("GET", f"{_ONE}/decisions"): Operation(
        "Scaling decisions, newest first.",
        many(of_record(DecisionRecord)),
        query={**COUNT, "until": MOMENT},
    ),
    ("GET", f"{_ONE}/log"): Operation(
        "All that is kept of demand and decisions, the oldest first.", many(members(kind=TEXT))
    ),
    ("POST", f"{_ONE}/simulate"): Operation(
        "What other policies would have done with the requests that it had.",
        members(policies=mapping(ANYTHING)),
        body=optional(
            policies=many(one_of(list(POLICIES))),
            price_gpu_s=NUMBER | {"exclusiveMinimum": 0, "maximum": 1_000_000},
        ),
    ),
    ("GET", f"{_ONE}/events"): Operation(
        "What happened to it, newest first.", many(of_record(EventRecord)), query=COUNT
    ),
    ("GET", f"{_ONE}/cold_starts"): Operation(
        "Its replicas' starts, newest first.", many(of_record(ColdStart)), query=COUNT
    ),
    ("GET", f"{_ONE}/logs"): Operation(
        "The last lines of its replicas, by id.",
        mapping(many(TEXT)),
        query={"replica": TEXT, "lines": WHOLE | {"minimum": 0, "maximum": 1000}},
    ),
    ("GET", f"{_ONE}/series"): Operation(
        "What it did, step by step; times in Unix seconds.",
        SERIES,
        query={**STEPS, "version": TEXT},
    ),
    ("GET", f"{ROOT}/series"): Operation(
        "The same of all that the caller may see together.", SERIES, query=STEPS
    ),
    ("GET", f"{ROOT}/totals"): Operation(
        "What the deployments that the caller sees are and do, all together.", TOTALS
    ),
    ("GET", f"{ROOT}/costs"): Operation(
        "What was taken, and what that cost, in whole hours; as `csv` a file with the same.",
        COSTS,
        query=COST_QUERY,
        file="text/csv",
    ),
    ("GET", f"{ROOT}/models/{{name}}/{{version}}"): Operation(
        "A model: its files, who uses it, and what each node has of it.", MODEL
    ),
    ("GET", f"{_ONE}/rollout"): Operation("How its last roll-out stands.", ROLLOUT),
    ("POST", f"{_ONE}/rollout"): Operation(
        "Does something about it: `undo` may say `to` which revision, `promote` says a `version`.",
        ROLLOUT,
        body=members(action=one_of(ACTIONS)),
    ),
    ("GET", f"{_ONE}/revisions"): Operation(
        "The revisions that are kept, newest first.",
        page(REVISION),
        query={**COUNT, "start": WHOLE | {"minimum": 0}},
    ),
    ("POST", f"{_ONE}/call"): Operation(
        "Calls the deployment as its callers do; answers as it does, as it comes.",
        ANYTHING,
        body=optional(
            method=one_of(METHODS), path=TEXT, headers=mapping(TEXT), body=ANYTHING, version=TEXT
        ),
        media="*/*",
        passes_on=True,
    ),
    ("GET", f"{ROOT}/events"): Operation(
        "What happened to all deployments, newest first; for operators to the platform too.",
        many(of_record(EventRecord)),
        query=COUNT,
    ),
    ("GET", f"{ROOT}/stream"): Operation(
        "What the others answer, as it changes: server-sent events, each of one of the topics.",
        TEXT,
        query={"topics": TEXT},
        media="text/event-stream",
    ),
    ("GET", f"{ROOT}/platform"): Operation("How the platform's parts are.", PLATFORM),
    ("GET", f"{ROOT}/quotas"): Operation("Quotas, and what is used of them.", many(QUOTA)),
    ("GET", f"{ROOT}/quotas/{{organization}}"): Operation("An organization's quota.", QUOTA),
    ("PUT", f"{ROOT}/quotas/{{organization}}"): Operation(
        "Changes a quota; null is unlimited.",
        QUOTA,
        body=optional(
            limit=optional(**{name: null_or(NUMBER | {"minimum": 0}) for name in LIMITS}),
            weight=NUMBER | {"exclusiveMinimum": 0, "maximum": 1e6},
            priority=WHOLE | {"minimum": 0, "maximum": 7},
        ),
    ),
    ("GET", f"{ROOT}/standby"): Operation("Standbys, and why there are so many.", STANDBY),
    ("PUT", f"{ROOT}/standby"): Operation(
        "Changes settings of the standbys; null takes back what was set.",
        STANDBY,
        body=members(settings=null_or(mapping(ANYTHING))),
    ),
    ("GET", f"{_ONE}/build_log"): Operation(
        "The output of the build of its environment, whole.",
        members(digest=TEXT, state=TEXT, log=TEXT),
    ),
    ("GET", f"{ROOT}/environments"): Operation(
        "The Python environments of bentos, those first that were used last.",
        page(
            members(
                digest=TEXT,
                state=one_of(["building", "ready", "failed"]),
                organization=TEXT,
                size_bytes=WHOLE,
                used_by=many(TEXT),
                built_at=null_or(MOMENT),
                build_s=null_or(NUMBER),
                log_tail=many(TEXT),
            )
        ),
    ),
    ("POST", f"{ROOT}/gc"): Operation(
        "Removes what nobody wants; a dry run only says what that is.",
        members(manifests=WHOLE, blobs=WHOLE, environments=WHOLE, bytes=WHOLE),
        query={"dry_run": one_of(["true", "false"])},
        body=optional(dry_run=FLAG),
    ),
    ("GET", f"{ROOT}/keys"): Operation("The keys of secrets, never the keys themselves.", KEYS),
    ("POST", f"{ROOT}/keys/rotate"): Operation("Encrypts all secrets with a new key.", KEYS),
    ("GET", f"{ROOT}/audit"): Operation(
        "Who changed what, and who was refused, the newest first.",
        page(of_record(AuditLine)),
        query={
            **COUNT,
            "since": MOMENT,
            "until": MOMENT,
            "actor": TEXT,
            "action": TEXT,
            "before": WHOLE | {"minimum": 0, "maximum": 10**15 - 1},
        },
    ),
    ("GET", f"{ROOT}/organizations"): Operation(
        "The organizations that the caller may see.", page(ORGANIZATION)
    ),
    ("POST", f"{ROOT}/organizations"): Operation(
        "Makes one.",
        ORGANIZATION,
        body=members(name=TEXT | {"maxLength": 40, "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"}),
    ),
    ("GET", _ORGANIZATION): Operation("One organization.", ORGANIZATION),
    ("PATCH", _ORGANIZATION): Operation(
        "Describes it.", ORGANIZATION, body=optional(description=TEXT | {"maxLength": 1000})
    ),
    ("DELETE", _ORGANIZATION): Operation(
        "Deletes it; by `force` with its deployments.", ORGANIZATION, query=FORCE
    ),
    ("GET", f"{_ORGANIZATION}/members"): Operation("Its members, by name.", page(MEMBER)),
    ("GET", _MEMBER): Operation("One member.", MEMBER),
    ("PUT", _MEMBER): Operation(
        "Adds a member, or changes one.", MEMBER, body=optional(email=TEXT, role=ROLE)
    ),
    ("DELETE", _MEMBER): Operation("Ends a membership.", MEMBER),
    ("POST", f"{_USER}/link"): Operation(
        "Makes a link by which a member signs in once.", members(url=TEXT, expires_at=MOMENT)
    ),
    ("PUT", f"{_USER}/operator"): Operation(
        "Makes somebody an operator, or ends that.",
        members(name=TEXT, operator=FLAG),
        body=members(operator=FLAG),
    ),
}
