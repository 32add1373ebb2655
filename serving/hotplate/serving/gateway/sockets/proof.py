"""How gateways prove to each other that they know the same secret, without sending it. Pure, except
for the random numbers.

On each connection, before anything else is sent, the connecting side sends a random number; the
listening side responds with its own number and the proof that it knows the secret; then the first
side proves it too. A proof covers both numbers, the side, and the socket's name, so that it cannot
be used elsewhere, or again.
"""

from __future__ import annotations

import hmac
import os
import socket
import struct
from hashlib import sha256

NUMBER_BYTES = 32
PROOF_BYTES = 32
NETWORK = "peers"
"""The name of every socket at which gateways of other machines are met."""
_ASKS, _LISTENS, _SAYS = b"asks", b"listens", b"says"


class Proof:
    """Proofs that a gateway knows one secret."""

    def __init__(self, secret: str) -> None:
        self._key = secret.encode()

    def sign(self, gateway: str, text: str) -> str:
        """The signature below what a gateway publishes."""
        return self._of(_SAYS, gateway.encode(), text.encode()).hex()

    def verifies(self, signature: str, gateway: str, text: str) -> bool:
        """Whether the signature is that gateway's, for this text."""
        return hmac.compare_digest(signature.encode(), self.sign(gateway, text).encode())

    def _of(self, *parts: bytes) -> bytes:
        whole = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
        return hmac.digest(self._key, whole, sha256)


class ConnectingSide:
    """The side that has connected to the socket of that name."""

    def __init__(self, proof: Proof, name: str) -> None:
        self._proof = proof
        self._name = name.encode()
        self.first = os.urandom(NUMBER_BYTES)
        """The first bytes to send."""

    def respond(self, answer: bytes) -> bytes:
        """Takes the other side's response, `NUMBER_BYTES + PROOF_BYTES` long; returns what to send
        then. Raises PermissionError if the other side does not know the secret."""
        number, shown = answer[:NUMBER_BYTES], answer[NUMBER_BYTES:]
        expected = self._proof._of(_LISTENS, self._name, self.first, number)
        if len(number) != NUMBER_BYTES or not hmac.compare_digest(shown, expected):
            raise PermissionError(f"what listens at {self._name.decode()} is no gateway of ours")
        return self._proof._of(_ASKS, self._name, self.first, number)


class ListeningSide:
    """The side that listens at the socket of that name, for one connection."""

    def __init__(self, proof: Proof, name: str) -> None:
        self._proof = proof
        self._name = name.encode()
        self._own = os.urandom(NUMBER_BYTES)
        self._expected = b""

    def answer(self, number: bytes) -> bytes:
        """The response to the other side's number. Raises PermissionError."""
        if len(number) != NUMBER_BYTES:
            raise PermissionError("what has connected is no gateway of ours")
        self._expected = self._proof._of(_ASKS, self._name, number, self._own)
        return self._own + self._proof._of(_LISTENS, self._name, number, self._own)

    def check(self, shown: bytes) -> None:
        """Raises PermissionError if the other side does not know the secret."""
        if not self._expected or not hmac.compare_digest(shown, self._expected):
            raise PermissionError("what has connected is no gateway of ours")


def check_user(connection: socket.socket) -> None:
    """Raises PermissionError if the other end is neither this user's nor root's."""
    credentials = connection.getsockopt(
        socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")
    )
    _, user, _ = struct.unpack("3i", credentials)
    if user not in (os.geteuid(), 0):
        raise PermissionError(f"user {user} is at the other end of a gateway's socket")
