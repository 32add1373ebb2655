"""Users of a WebSocket: each keeps one, sends the payload as a message and waits for an answer.

    locust -f sockets.py --host URL --route /ws/echoes --payload '{"text": "Hello"}'

Locust's statistics have two rows: OPEN is the handshake, MESSAGE the time from a message to the
next one that comes.
"""

from __future__ import annotations

from time import perf_counter as clock

import gevent
from locust import task
from websocket import ABNF, WebSocket, WebSocketException, create_connection

from deployment_user import TIMEOUT_S, DeploymentUser

SWITCHING = 101
AFTER_FAILURE_S = 1.0


class SocketUser(DeploymentUser):
    _socket: WebSocket | None = None

    @task
    def exchange(self) -> None:
        began = clock()
        what = "MESSAGE" if self._socket else "OPEN"
        try:
            if self._socket is None:
                self._socket = self._opened()
            else:
                self._socket.send(self.payload().decode())
                opcode, _ = self._socket.recv_data()
                if opcode == ABNF.OPCODE_CLOSE:
                    raise WebSocketException("the server closed the socket")
        except (OSError, WebSocketException) as error:
            self.report(what, clock() - began, error)
            self.on_stop()
            gevent.sleep(AFTER_FAILURE_S)
        else:
            self.report(what, clock() - began)

    def on_stop(self) -> None:
        if self._socket is not None:
            self._socket.shutdown()
            self._socket = None

    def _opened(self) -> WebSocket:
        """Raises OSError, WebSocketException; a redirect is not followed."""
        opened = create_connection(
            "ws" + (self.host or "").removeprefix("http") + self.route,
            timeout=TIMEOUT_S,
            header=self.headers,
            redirect_limit=0,
        )
        if opened.getstatus() != SWITCHING:
            opened.shutdown()
            raise WebSocketException(f"the handshake was answered with {opened.getstatus()}")
        return opened
