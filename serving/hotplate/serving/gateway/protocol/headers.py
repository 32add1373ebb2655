"""Header fields of our own, between control plane, gateways and our workers.

Replicas have a copy of the workers' fields (`replica/inside/patches`), because their code runs in
the user's environment.
"""

from __future__ import annotations

GATEWAY_FIELD, FLEET_FIELD = "X-Hotplate-Gateway", "X-Hotplate-Fleet"
"""To the control plane: the gateway that connects, and the folder of its fleet."""
TASK_ID = b"hotplate-task-id"
"""Tells our worker which task it runs; only a gateway sends it."""
SECRET = b"hotplate-secret"
"""The secret of the services of one revision, which call each other; it never reaches user code."""
REPLICA_KEY = "hotplate-replica."
"""What the key begins with by which a replica calls other deployments: a bearer token that no other
replica gets to see."""
REPLICA = b"hotplate-replica"
"""To our worker: for which replica the request is, and how many handlers may run there at a time.
What it does not let begin comes back (`replica/inside/patches/fence.py`)."""
DUE = b"hotplate-due-in"
"""From a gateway to the owner of a route: in how many seconds the response is due, for a request
that waited with an earlier owner."""
PASSED = b"hotplate-passed"
"""From a gateway to the owner of a route, and on to our worker: 16 hexadecimal digits by which the
gateway can have this sending of a request back (`replica/inside/patches/begun.py`)."""
VERSION_FIELD = b"hotplate-version"
"""Chooses in a request, and tells in a response, which version of a deployment with a canary
answers. The request's goes on to the replica; a replica's own is dropped."""
ANSWER_BYTES = b"hotplate-answer-bytes"
"""From our worker, in place of a length: how much of the response is for the caller; its end comes
when the handler has ended (`replica/inside/patches/hooks.py`)."""


def version_line(version: str) -> bytes:
    """The header line that names the version; empty for none."""
    return b"Hotplate-Version: %b\r\n" % version.encode() if version else b""
