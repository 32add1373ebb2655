"""How gateways show each other that they have the same secret, without telling it. Pure, but for
the random numbers.

On each connection, before anything else is said: the one that asks sends a random number; the one
that listens answers with its own and the proof that it knows the secret; then the first one proves
it too. The proofs are of both numbers, of the side, and of the socket's name, so that none serves
anywhere else, or again.
"""

from __future__ import annotations

import hmac
import os
import socket
import struct
from hashlib import sha256

NUMBER_BYTES = 32
PROOF_BYTES = 32
_ASKS, _LISTENS, _SAYS = b"asks", b"listens", b"says"


class Proof:
    """Of one secret."""

    def __init__(self, secret: str) -> None:
        self._key = secret.encode()

    def seal(self, gateway: str, said: str) -> str:
        """What a gateway writes below what it says of itself."""
        return self._of(_SAYS, gateway.encode(), said.encode()).hex()

    def fits(self, seal: str, gateway: str, said: str) -> bool:
        """Whether that gateway has said it, and has the secret."""
        return hmac.compare_digest(seal.encode(), self.seal(gateway, said).encode())

    def _of(self, *parts: bytes) -> bytes:
        whole = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
        return hmac.digest(self._key, whole, sha256)


class Asker:
    """The side that has connected to the socket of that name."""

    def __init__(self, proof: Proof, name: str) -> None:
        self._proof = proof
        self._name = name.encode()
        self.first = os.urandom(NUMBER_BYTES)
        """To be sent first."""

    def hear(self, answer: bytes) -> bytes:
        """Takes the other side's answer, `NUMBER_BYTES + PROOF_BYTES` long; what to send then.

        Raises PermissionError where the other side does not have the secret.
        """
        number, shown = answer[:NUMBER_BYTES], answer[NUMBER_BYTES:]
        expected = self._proof._of(_LISTENS, self._name, self.first, number)
        if len(number) != NUMBER_BYTES or not hmac.compare_digest(shown, expected):
            raise PermissionError(f"what listens at {self._name.decode()} is no gateway of ours")
        return self._proof._of(_ASKS, self._name, self.first, number)


class Listening:
    """The side that listens at the socket of that name, for one connection."""

    def __init__(self, proof: Proof, name: str) -> None:
        self._proof = proof
        self._name = name.encode()
        self._own = os.urandom(NUMBER_BYTES)
        self._expected = b""

    def answer(self, number: bytes) -> bytes:
        """What to answer to the other side's number. Raises PermissionError."""
        if len(number) != NUMBER_BYTES:
            raise PermissionError("what has connected is no gateway of ours")
        self._expected = self._proof._of(_ASKS, self._name, number, self._own)
        return self._own + self._proof._of(_LISTENS, self._name, number, self._own)

    def check(self, shown: bytes) -> None:
        """Raises PermissionError where the other side does not have the secret."""
        if not self._expected or not hmac.compare_digest(shown, self._expected):
            raise PermissionError("what has connected is no gateway of ours")


def check_user(connection: socket.socket) -> None:
    """Raises PermissionError where the other end is not this user's, or root's."""
    said = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, user, _ = struct.unpack("3i", said)
    if user not in (os.geteuid(), 0):
        raise PermissionError(f"user {user} is at the other end of a gateway's socket")
