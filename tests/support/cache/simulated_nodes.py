"""Agents in virtual time: the real planner, with simulated greetings, uploads and downloads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hotplate.cache.manifest import CHUNK_BYTES, count_chunks
from hotplate.cache.swarm.assignment import ORIGIN, Assignment, Missed
from hotplate.cache.swarm.chunk_picker import ChunkPicker
from hotplate.cache.swarm.chunks import Chunks
from hotplate.cache.swarm.content_state import ContentState
from hotplate.cache.swarm.download_slots import TRANSFERS, WAITS
from hotplate.cache.swarm.participants import PeerState
from hotplate.cache.swarm.peer_scores import NO_PROGRESS_S, PeerScores
from hotplate.cache.swarm.upload_slots import UploadSlots
from tests.support.cache.simulated_links import End, Links
from tests.support.cache.virtual_time import VirtualTime

DELAY_S = 0.001
HOLD_S = 1.0
GREET_S = 1.0
MIN_INTERVAL_S = 0.02
ORIGIN_REQUESTS = 2


class World:
    """What all nodes share: time, links, the origin, and the one content of `size_bytes`."""

    def __init__(self, size_bytes: int, link: float, news_s: Callable[[], float]) -> None:
        """`news_s`: how long the next message about which node has what is under way."""
        self.size_bytes = size_bytes
        self.news_s = news_s
        self.count = count_chunks(size_bytes)
        self.time = VirtualTime()
        self.links = Links(self.time, link)
        self.origin = End()
        self.origin_bytes = 0
        self.origin_takes: dict[int, int] = {}
        self.nodes: list[SimNode] = []

    def length(self, index: int) -> int:
        return min(CHUNK_BYTES, self.size_bytes - index * CHUNK_BYTES)


@dataclass(eq=False)
class _Request:
    """A request of one node at another."""

    asker: SimNode
    step: Assignment
    have: int
    """Bitmap of the asker's chunks."""


class SimNode(End):
    """One agent."""

    def __init__(self, world: World, name: str, kind: str) -> None:
        super().__init__()
        self.world = world
        self.name = name
        self.kind = kind
        self.chunks = Chunks("model", world.count)
        self.state = ContentState("key", self.chunks, name, PeerScores())
        self.picker = ChunkPicker(self.state)
        self.greetings = _Greetings(self)
        self.downloads = _Downloads(self)
        self.uploads = _Uploads(self)
        self.joined_at: float | None = None
        self.done_at: float | None = None
        self.dead = False
        self.wrong = 0
        self.refused = 0

    @property
    def settled(self) -> bool:
        return self.dead or not self.honest or self.done_at is not None

    @property
    def honest(self) -> bool:
        return self.kind == "honest"

    @property
    def took_s(self) -> float:
        assert self.done_at is not None and self.joined_at is not None
        return self.done_at - self.joined_at

    @property
    def have(self) -> int:
        """Bitmap of its chunks, by its own account."""
        if self.kind in ("lies", "boasts"):
            return (1 << self.world.count) - 1
        return self.chunks.verified_bits

    def join(self) -> None:
        self.joined_at = self.world.time.now
        self.greetings.begin()

    def die(self) -> None:
        self.dead = True
        for transfer in self.world.links.stop(self):
            if transfer.target is not self:
                transfer.done()

    def announce(self) -> None:
        """Has the others greeted if there is something new for them."""
        if self.state.changed:
            self.state.changed = False
            self.greetings.send_soon()


class _Greetings:
    """The messages of one node about its state."""

    def __init__(self, node: SimNode) -> None:
        self._node = node
        self._world = node.world
        self._heard_from: set[SimNode] = set()
        self._sent_at = -MIN_INTERVAL_S
        self._sending = False

    def begin(self) -> None:
        """Sends one now, and again and again."""
        if not self._node.dead:
            self._send()
            self._world.time.after(GREET_S, self.begin)

    def send_soon(self) -> None:
        """Greets the others, unless they were greeted just now."""
        if not self._sending:
            self._sending = True
            self._world.time.at(self._sent_at + MIN_INTERVAL_S, self._send)

    def _send(self) -> None:
        self._sending = False
        self._sent_at = self._world.time.now
        for peer in self._world.nodes:
            if peer is not self._node and not self._node.dead:
                self._greet(peer)
        self._settle()

    def _greet(self, peer: SimNode) -> None:
        sent = self._state_for(peer)
        self._world.time.after(
            self._world.news_s(), lambda: peer.greetings.receive(self._node, sent)
        )

    def receive(self, sender: SimNode, sent: PeerState) -> None:
        """A greeting has come; the response goes out."""
        response = None
        if self._node.joined_at is not None and not self._node.dead:
            self._learn(sender, sent)
            response = self._state_for(sender)
        self._world.time.after(
            self._world.news_s(),
            lambda: sender.greetings.receive_response(self._node, response, sent.number),
        )

    def receive_response(self, peer: SimNode, response: PeerState | None, number: int) -> None:
        self._heard_from.add(peer)
        if response is not None:
            self._learn(peer, response)
        else:
            self._node.state.forget(peer.name, self._world.time.now, number)
        self._settle()

    def _settle(self) -> None:
        self._node.picker.settled |= len(self._heard_from) == len(self._world.nodes) - 1
        self._node.downloads.wake()

    def _learn(self, peer: SimNode, state: PeerState) -> None:
        self._node.state.receive(peer.name, state, self._world.time.now)
        self._node.downloads.wake()

    def _state_for(self, peer: SimNode) -> PeerState:
        """A bad node takes nothing from the origin, whatever it claims to have."""
        node = self._node
        return node.state.state_for(peer.name) if node.honest else PeerState(node.have)


class _Downloads:
    """What one node asks of others and of the origin."""

    def __init__(self, node: SimNode) -> None:
        self._node = node
        self._world = node.world
        self._under_way = 0
        self._waiting = 0
        self._from_origin = 0
        self._waking = False

    def wake(self) -> None:
        if not self._waking:
            self._waking = True
            self._world.time.after(0.0, self._fill)

    def _fill(self) -> None:
        self._waking = False
        node, now = self._node, self._world.time.now
        # A bad node takes nothing from the origin: another one has to take over what it owns.
        while node.honest and not node.dead and not node.chunks.complete:
            origin_free = self._from_origin < ORIGIN_REQUESTS
            step = node.picker.next(
                now, False, origin_free, self._under_way < TRANSFERS, self._waiting < WAITS
            )
            node.announce()
            if step is None:
                wakes_at = node.picker.wakes_at(now)
                if wakes_at is not None:
                    self._world.time.at(wakes_at + 1e-6, self.wake)
                return
            if step.source == ORIGIN:
                self._fetch(step)
            else:
                self._count(step, 1)
                self._ask(step)

    def _count(self, step: Assignment, change: int) -> None:
        if step.waits:
            self._waiting += change
        elif step.source != ORIGIN:
            self._under_way += change

    def _fetch(self, step: Assignment) -> None:
        world, length = self._world, self._world.length(step.index)
        self._from_origin += 1
        world.origin_takes[step.index] = world.origin_takes.get(step.index, 0) + 1
        world.origin_bytes += length

        def done() -> None:
            self._from_origin -= 1
            self.verified(step, 0.0)

        world.time.after(DELAY_S, lambda: world.links.send(world.origin, self._node, length, done))

    def _ask(self, step: Assignment) -> None:
        peer = next(one for one in self._world.nodes if one.name == step.source)
        request = _Request(self._node, step, self._node.chunks.verified_bits)
        self._world.time.after(DELAY_S, lambda: peer.uploads.receive(request))

    def missed(self, step: Assignment, why: Missed, peer: SimNode, retry_s: float = 0.0) -> None:
        """A peer did not give a chunk."""
        self._count(step, -1)
        error = self._node.picker.missed(step, why, self._world.time.now, retry_s)
        assert error is None, error
        if why in (Missed.NOT_YET, Missed.BUSY):
            self._node.state.note_have(peer.name, peer.have)
        self.wake()

    def verified(self, step: Assignment, took_s: float) -> None:
        """A chunk has come."""
        self._count(step, -1)
        self._node.picker.verified(step, took_s, self._world.time.now)
        if self._node.chunks.complete:
            self._node.done_at = self._world.time.now
        self._node.announce()
        self._node.uploads.serve_waiting(step.index)
        self.wake()


class _Uploads:
    """What others ask of one node."""

    def __init__(self, node: SimNode) -> None:
        self._node = node
        self._world = node.world
        self._slots = UploadSlots()
        self._waiting: dict[int, list[_Request]] = {}

    def receive(self, request: _Request) -> None:
        node, index = self._node, request.step.index
        if node.dead:
            self._refuse(request, Missed.STALLED)
        elif node.kind in ("stalls", "boasts"):
            self._world.time.after(NO_PROGRESS_S, lambda: self._refuse(request, Missed.STALLED))
        elif node.have >> index & 1:
            node.state.note_have(request.asker.name, request.have)
            self._serve(request)
        elif node.chunks.cannot(index):
            self._refuse(request, Missed.CANNOT)
        elif not request.step.urgent:
            self._refuse(request, Missed.NOT_YET)
        else:
            self._waiting.setdefault(index, []).append(request)
            self._world.time.after(HOLD_S, lambda: self._let_go(request))

    def serve_waiting(self, index: int) -> None:
        """Answers the requests that were kept until this node has the chunk."""
        for request in self._waiting.pop(index, []):
            self._serve(request)

    def _refuse(self, request: _Request, why: Missed, retry_s: float = 0.0) -> None:
        request.asker.downloads.missed(request.step, why, self._node, retry_s)

    def _let_go(self, request: _Request) -> None:
        waiting = self._waiting.get(request.step.index, [])
        if request in waiting:
            waiting.remove(request)
            self._refuse(request, Missed.STALLED if self._node.dead else Missed.NOT_YET)

    def _serve(self, request: _Request) -> None:
        asker, index = request.asker, request.step.index
        if asker.dead:
            return
        retry_s = self._slots.begin()
        if retry_s is not None:
            self._node.refused += 1
            if not self._node.chunks.complete:
                asker.state.add_hints(index, self._node.state.other_holders(index, asker.name))
            self._refuse(request, Missed.BUSY, retry_s)
            return
        began, have = self._world.time.now, self._node.have
        length = self._world.length(index)
        self._world.links.send(self._node, asker, length, lambda: self._sent(request, began, have))

    def _sent(self, request: _Request, began: float, have: int) -> None:
        node, asker, took_s = self._node, request.asker, self._world.time.now - began
        self._slots.end(took_s)
        if node.dead:
            self._refuse(request, Missed.STALLED)
        elif node.kind == "lies":
            asker.wrong += 1
            self._refuse(request, Missed.CORRUPT)
        elif not asker.dead:
            node.state.note_have(asker.name, 1 << request.step.index)
            asker.state.note_have(node.name, have)
            asker.downloads.verified(request.step, took_s)
