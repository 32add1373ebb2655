"""When a route looks at slow callers, those whose bodies still come above all, and what becomes of
them."""

from __future__ import annotations

from hotplate.serving.gateway.errors import BodyNotKept, GatewayError, RequestSlow
from hotplate.serving.gateway.protocol.routes import Change
from hotplate.serving.gateway.proxy.alarm import Alarm
from hotplate.serving.gateway.proxy.caller import Caller
from hotplate.serving.gateway.proxy.dispatcher import Dispatcher
from hotplate.serving.gateway.proxy.slow_bodies import SlowBodies
from hotplate.serving.gateway.proxy.spool import Spool, SpoolRoom
from hotplate.serving.gateway.proxy.upload import Upload

AGAIN_S = 10.0
"""When to come again, of a body that nothing has room for."""


class BodyGate:
    """Lets requests whose bodies still come go for the slots of one route; `SlowBodies` decides."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self._loop = dispatcher.loop
        self._slow_bodies: SlowBodies[Upload] = SlowBodies(lambda: dispatcher.limits)
        self._entries = Alarm(self._let_in)
        self._stalls = Alarm(self._end_stalled)
        self._full: set[Caller] = set()
        """Callers who have not taken what was written to them."""
        self._held_bytes = 0
        """In memory, of all that wait for their bodies."""
        self._room = SpoolRoom(lambda: dispatcher.limits.spool_bytes)

    @property
    def any_waiting(self) -> bool:
        """Whether a body is waited for."""
        return self._slow_bodies.any_waiting

    @property
    def held_bytes(self) -> int:
        """Of bodies that are waited for, in memory."""
        return self._held_bytes

    @property
    def spooled_bytes(self) -> int:
        """Of bodies, in files."""
        return self._room.used_bytes

    def expect(self, upload: Upload) -> None:
        """Its turn on its connection has come, its body has not."""
        self._entries.set(self._slow_bodies.expect(upload, self._loop.time()))
        upload.held_bytes = upload.buffered
        self._held_bytes += upload.buffered
        if not self._dispatcher.queue.ready:
            self._dispatcher.changed(Change.BEGAN)

    def lends(self, upload: Upload) -> bool:
        """Whether it may go for a slot now, and its body follows: much of it is here."""
        slots, free = self._slots()
        return self._slow_bodies.lends(upload, slots, free, self._loop.time())

    def arrived(self, upload: Upload) -> None:
        """It is complete, or will not be."""
        self._slow_bodies.forget(upload)
        self._held_bytes -= upload.held_bytes
        upload.held_bytes = 0
        if not self._dispatcher.queue.ready:
            self._dispatcher.changed(Change.COUNTS)

    def entered(self, upload: Upload) -> None:
        """It goes for a slot, and its body still comes."""
        self._slow_bodies.entered(upload)

    def others_wait(self, now: float) -> None:
        """A request waits for a slot that one of these may have."""
        if self._slow_bodies.any_inside:
            self._stalls.set(self._slow_bodies.next_stall_at(now))
        elif self._full:
            self._stalls.set(now + self._dispatcher.limits.stall_s / 4)

    def full(self, caller: Caller) -> None:
        """The caller has not taken what was written, and its replica may wait for that."""
        self._full.add(caller)
        if self._dispatcher.queue.queued:
            self.others_wait(self._loop.time())

    def taken(self, caller: Caller) -> None:
        """The caller has taken it, or has left."""
        self._full.discard(caller)

    def slot_freed(self) -> None:
        """Somebody may go for a slot."""
        if self._slow_bodies.any_hoping:
            self._let_in()

    def keep(self, upload: Upload, data: bytes) -> GatewayError | None:
        """Keeps more of a body that is waited for; why it cannot be kept."""
        spool = upload.spool
        if spool is None:
            limits, queue = self._dispatcher.limits, self._dispatcher.queue
            size_bytes = upload.held_bytes + len(data)
            all_bytes = self._held_bytes + queue.queued_bytes + len(data)
            fits = size_bytes <= limits.hold_bytes
            if size_bytes <= limits.read_ahead_bytes or (
                fits and all_bytes <= queue.overflow.limit_bytes
            ):
                upload.held_bytes = size_bytes
                self._held_bytes += len(data)
                upload.hold(data)
                return None
            spool = upload.spool = self.spool()
        return self._write(upload, spool, data)

    def spool(self) -> Spool:
        """For a body that is long."""
        return Spool(self._room)

    def stop(self) -> None:
        self._entries.cancel()
        self._stalls.cancel()

    # Inside

    def _slots(self) -> tuple[int, int]:
        """The route's slots, and those that nobody has or waits for."""
        queue = self._dispatcher.queue
        return queue.slots, 0 if queue.queued else queue.slots - queue.in_flight

    def _write(self, upload: Upload, spool: Spool, data: bytes) -> GatewayError | None:
        while not self._room.has(len(data)):
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

    def _let_in(self) -> None:
        slots, free = self._slots()
        for upload in self._slow_bodies.entering(slots, free, self._loop.time()):
            if upload.caller is not None:
                upload.caller.let_in(upload)
        at = self._slow_bodies.next_at()
        if at is not None:
            self._entries.set(at)

    def _end_stalled(self) -> None:
        """While others wait, a body that stands still must not have a slot, nor a caller who does
        not take the answer."""
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
        for caller in list(self._full):
            caller.end_if_it_takes_little(now)
        self.others_wait(now)
