"""What gateways show each other before they pass anything on: that they have the same secret."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from hotplate.serving.gateway.fleet.connection_backup import ConnectionBackup
from hotplate.serving.gateway.fleet.handover import Inbox, hand_over
from hotplate.serving.gateway.fleet.membership import Fleet
from hotplate.serving.gateway.fleet.peer_queries import ask_gateway
from hotplate.serving.gateway.owner.peer_listener import PeerListener
from hotplate.serving.gateway.sockets.packets import PacketListener
from hotplate.serving.gateway.sockets.proof import (
    NUMBER_BYTES,
    ConnectingSide,
    ListeningSide,
    Proof,
)
from tests.support.patience import PATIENCE_S

OURS, THEIRS = Proof("ours"), Proof("theirs")


def test_both_sides_show_the_secret_and_neither_tells_it() -> None:
    asker, listening = ConnectingSide(OURS, "a.sock"), ListeningSide(OURS, "a.sock")
    answer = listening.answer(asker.first)
    shown = asker.respond(answer)
    listening.check(shown)
    assert b"ours" not in asker.first + answer + shown


@pytest.mark.parametrize(("proof", "name"), [(THEIRS, "a.sock"), (OURS, "b.sock")])
def test_another_secret_or_another_socket_is_neither_believed_nor_told(
    proof: Proof, name: str
) -> None:
    asker, listening = ConnectingSide(OURS, "a.sock"), ListeningSide(proof, name)
    with pytest.raises(PermissionError, match=r"what listens at a\.sock is no gateway of ours"):
        asker.respond(listening.answer(asker.first))
    asker, listening = ConnectingSide(proof, name), ListeningSide(OURS, "a.sock")
    answer = listening.answer(asker.first)
    with pytest.raises(PermissionError):
        asker.respond(answer)


def test_nothing_that_was_shown_serves_again_or_back() -> None:
    asker, listening = ConnectingSide(OURS, "a.sock"), ListeningSide(OURS, "a.sock")
    answer = listening.answer(asker.first)
    shown = asker.respond(answer)
    again = ListeningSide(OURS, "a.sock")
    again.answer(asker.first)
    for replayed in (shown, answer[NUMBER_BYTES:], b""):
        with pytest.raises(PermissionError):
            again.check(replayed)
    with pytest.raises(PermissionError):
        ListeningSide(OURS, "a.sock").check(shown)
    for short in (b"", answer[:NUMBER_BYTES], answer[:-1], asker.first + shown):
        with pytest.raises(PermissionError):
            ConnectingSide(OURS, "a.sock").respond(short)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[Fleet, Fleet]]:
    """A gateway of ours, and one that has only come into the folder."""
    ours, theirs = Fleet(tmp_path, 1.0, secret="ours"), Fleet(tmp_path, 2.0, secret="theirs")
    yield ours, theirs
    theirs.leave()
    ours.leave()


def test_who_has_no_secret_is_no_gateway_and_owns_nothing(pair: tuple[Fleet, Fleet]) -> None:
    ours, theirs = pair
    for fleet in pair:
        fleet.join()
        fleet.serve(f"default/{number}" for number in range(50))
    assert ours.look() == []
    assert theirs.look() == []
    assert {ours.rightful_owner(f"default/{number}") for number in range(50)} == {ours.id}


def test_what_another_gateway_has_written_cannot_be_given_out_as_ones_own(
    pair: tuple[Fleet, Fleet],
) -> None:
    ours, theirs = pair
    ours.join()
    theirs.join()
    written = (ours.folder / f"{ours.id}.gateway").read_bytes()
    (ours.folder / f"{theirs.id}.gateway").write_bytes(written)
    assert ours.look() == []


def test_a_peer_whose_file_is_just_being_written_stays_one(tmp_path: Path) -> None:
    one, other = Fleet(tmp_path, 1.0, secret="ours"), Fleet(tmp_path, 2.0, secret="ours")
    one.join()
    other.join()
    other.serve(["chat"])
    assert one.look() == [other.id]
    (tmp_path / f"{other.id}.gateway").write_text("half a")
    assert one.look() == [other.id]
    other.leave()
    one.leave()


async def test_no_stranger_passes_the_door_and_nothing_is_asked_of_a_strange_one(
    tmp_path: Path,
) -> None:
    served: list[str] = []

    def operator() -> asyncio.Protocol:
        served.append("operator")
        return asyncio.Protocol()

    path = tmp_path / "a.sock"
    listener = PeerListener(OURS, lambda name: None, {"": operator})
    await listener.open(path)
    for said in (b"\nGET /healthz HTTP/1.1\r\n\r\n" * 4, b"default/victim\n" * 8):
        reader, writer = await asyncio.open_unix_connection(str(path))
        writer.write(said)
        with suppress(ConnectionResetError):
            async with asyncio.timeout(PATIENCE_S):
                await reader.read()
        writer.close()
    with pytest.raises(PermissionError, match="no gateway of ours"):
        await ask_gateway(str(path), THEIRS, "/healthz")
    assert served == []
    listener.close()


async def test_no_listening_socket_and_no_connection_is_given_to_a_stranger(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    taken: list[str] = []

    async def take(name: str, given: socket.socket) -> bool:
        taken.append(name)
        given.close()
        return True

    inbox = Inbox(tmp_path / "a.hand", THEIRS, take)
    inbox.open()
    with socket.socket() as listening:
        given = [("default/victim", listening.fileno())]
        await asyncio.to_thread(hand_over, tmp_path / "a.hand", OURS, given)
        assert "no gateway of ours" in caplog.text
        assert taken == []
        inbox.close()
        inbox = Inbox(tmp_path / "b.hand", OURS, take)
        inbox.open()
        await asyncio.to_thread(hand_over, tmp_path / "b.hand", OURS, given)
    assert taken == ["default/victim"]
    inbox.close()


async def test_nothing_is_backed_up_to_a_stranger(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ours, heir = Fleet(tmp_path, 1.0, secret="ours"), Fleet(tmp_path, 2.0, secret="ours")
    came: list[socket.socket] = []
    keeps = PacketListener(
        heir.backup_socket_of(heir.id), THEIRS, came.append
    )  # in the heir's place
    keeps.open()
    for fleet in (ours, heir):
        fleet.join()
        fleet.serve(["chat"])
    ours.look()
    backup = ConnectionBackup(ours, "chat")
    with socket.socket() as connection:
        backup.opened("r1", connection.fileno())
        async with asyncio.timeout(PATIENCE_S):
            while "no connections are backed up" not in caplog.text:  # noqa: ASYNC110 (nobody is told)
                await asyncio.sleep(0)
    assert came == []
    backup.close(in_order=True)
    keeps.close()
    heir.leave()
    ours.leave()
