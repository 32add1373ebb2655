"""When a route checks slow callers, and what becomes of them: of bodies that come slowly and of
responses that are taken slowly."""

from __future__ import annotations

from hotplate.serving.gateway.errors import BodyNotKept, GatewayError, RequestSlow
from hotplate.serving.gateway.protocol.routes import Change
from hotplate.serving.gateway.proxy.alarm import Alarm
from hotplate.serving.gateway.proxy.caller import Caller
from hotplate.serving.gateway.proxy.dispatcher import Dispatcher
from hotplate.serving.gateway.proxy.slow_bodies import SlowBodies
from hotplate.serving.gateway.proxy.spool import Spool, SpoolSpace
from hotplate.serving.gateway.proxy.upload import Upload

AGAIN_S = 10.0
"""Seconds for `Retry-After`, if there is no space for a body."""


class BodyGate:
    """Lets requests whose bodies still come have slots of one route; `SlowBodies` decides."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self._loop = dispatcher.loop
        self._slow_bodies: SlowBodies[Upload] = SlowBodies(lambda: dispatcher.limits)
        self._entries = Alarm(self._begin_early)
        self._stalls = Alarm(self._end_stalled)
        self._slow_readers: set[Caller] = set()
        """Callers that have not taken what was written to them."""
        self._buffered_bytes = 0
        """Bytes in memory of all bodies that are waited for."""
        self._space = SpoolSpace(lambda: dispatcher.limits.spool_bytes)

    @property
    def any_waiting(self) -> bool:
        """Whether any body is waited for."""
        return self._slow_bodies.any_waiting

    @property
    def held_bytes(self) -> int:
        """Bytes in memory of bodies that are waited for."""
        return self._buffered_bytes

    @property
    def spooled_bytes(self) -> int:
        """Bytes of bodies in files."""
        return self._space.used_bytes

    def expect(self, upload: Upload) -> None:
        """The request's turn on its connection has come, but its body has not."""
        self._entries.set(self._slow_bodies.expect(upload, self._loop.time()))
        upload.held_bytes = upload.buffered
        self._buffered_bytes += upload.buffered
        if not self._dispatcher.queue.ready:
            self._dispatcher.changed(Change.BEGAN)

    def lends(self, upload: Upload) -> bool:
        """Whether it may have a slot now although its body still comes: much of it is here."""
        slots, free = self._slots()
        return self._slow_bodies.lends(upload, slots, free, self._loop.time())

    def forget(self, upload: Upload) -> None:
        """The body is complete, or will not be."""
        self._slow_bodies.forget(upload)
        self._buffered_bytes -= upload.held_bytes
        upload.held_bytes = 0
        if not self._dispatcher.queue.ready:
            self._dispatcher.changed(Change.COUNTS)

    def began(self, upload: Upload) -> None:
        """The request waits for a slot, or has one, and its body still comes."""
        self._slow_bodies.began(upload)

    def requests_wait(self, now: float) -> None:
        """Requests wait for slots that unfinished bodies may have."""
        if self._slow_bodies.any_lent:
            self._stalls.set(self._slow_bodies.next_stall_at(now))
        elif self._slow_readers:
            self._stalls.set(now + self._dispatcher.limits.stall_s / 4)

    def write_blocked(self, caller: Caller) -> None:
        """The caller has not taken what was written, and its replica may wait for that."""
        self._slow_readers.add(caller)
        if self._dispatcher.queue.queued:
            self.requests_wait(self._loop.time())

    def write_unblocked(self, caller: Caller) -> None:
        """The caller has taken it, or has left."""
        self._slow_readers.discard(caller)

    def slot_freed(self) -> None:
        """A slot is free, which an unfinished body may have."""
        if self._slow_bodies.any_eligible:
            self._begin_early()

    def keep(self, upload: Upload, data: bytes) -> GatewayError | None:
        """Keeps more of a body that is waited for; returns why it cannot be kept."""
        spool = upload.spool
        if spool is None:
            limits, queue = self._dispatcher.limits, self._dispatcher.queue
            size_bytes = upload.held_bytes + len(data)
            all_bytes = self._buffered_bytes + queue.queued_bytes + len(data)
            fits = size_bytes <= limits.hold_bytes
            if size_bytes <= limits.read_ahead_bytes or (
                fits and all_bytes <= queue.overflow.limit_bytes
            ):
                upload.held_bytes = size_bytes
                self._buffered_bytes += len(data)
                upload.buffer(data)
                return None
            spool = upload.spool = self.spool()
        return self._write(upload, spool, data)

    def spool(self) -> Spool:
        """A new spool, for a long body."""
        return Spool(self._space)

    def stop(self) -> None:
        self._entries.cancel()
        self._stalls.cancel()

    # Inside

    def _slots(self) -> tuple[int, int]:
        """The route's slots, and those that no request has or waits for."""
        queue = self._dispatcher.queue
        return queue.slots, 0 if queue.queued else queue.slots - queue.in_flight

    def _write(self, upload: Upload, spool: Spool, data: bytes) -> GatewayError | None:
        while not self._space.has(len(data)):
            other = self._slow_bodies.to_push_out(upload, len(data), self._loop.time())
            if other is None:
                return self._not_kept("fill the room that there is")
            other.refuse(self._not_kept("need the room that this one fills"))
        try:
            spool.put(data)
        except OSError as error:
            return self._not_kept(f"find no room on the gateway's disk ({error.strerror})")
        return None

    def _not_kept(self, why: str) -> GatewayError:
        dispatcher = self._dispatcher
        return BodyNotKept(
            f"{dispatcher.route.name}: bodies that are not here whole {why} "
            f"({dispatcher.limits.spool_bytes} bytes); send it again later, or faster.",
            retry_after_s=AGAIN_S,
        )

    def _begin_early(self) -> None:
        slots, free = self._slots()
        for upload in self._slow_bodies.take_eligible(slots, free, self._loop.time()):
            if upload.caller is not None:
                upload.caller.begin_early(upload)
        at = self._slow_bodies.next_at()
        if at is not None:
            self._entries.set(at)

    def _end_stalled(self) -> None:
        """While requests wait, ends those that have slots and whose bodies, or callers, stand
        still."""
        dispatcher = self._dispatcher
        if not dispatcher.queue.queued:
            return
        limits, now = dispatcher.limits, self._loop.time()
        for upload in self._slow_bodies.stalled(now):
            upload.fail(
                RequestSlow(
                    f"The body stood still for {limits.stall_s:g} s, or came with less than "
                    f"{limits.slow_bytes_per_s} bytes/s, while others wait; send it again at once."
                )
            )
        for caller in list(self._slow_readers):
            caller.abort_if_slow_reader(now)
        self.requests_wait(now)
