"""GatewayError (the response is `{"error": {"code", "message"}}`)
├── BadRequest            400  the request cannot be read as HTTP/1.1
│   ├── RequestSlow       408  its header or body does not arrive
│   ├── TargetTooLong     414
│   ├── ExpectationRefused 417 an Expect other than 100-continue
│   ├── HeadTooLarge      431
│   ├── UnknownCoding     501  a transfer coding other than chunked
│   └── MethodRefused     501  CONNECT
├── BadTimeout            400  X-Request-Timeout-Seconds is no positive number
├── UnknownVersion        400  Hotplate-Version names no version of the deployment
├── Unauthorized          401  no or a wrong bearer token
├── PageRefused           403  a web page calls where only services may
├── CrossSite             403  a page of another origin calls, which CORS does not allow
├── NotYours              403  a service that only replicas of its own deployment call
├── Misdirected           421  a browser uses a name that is none of ours
├── PathReserved          404  a path between replicas and gateways only
├── UnknownHost           404  no deployment has that name at an address that several share
├── BodyTooLarge          413
├── PickleRefused         415  a pickle from outside
├── ShareFull             429  the queue is full, and its organization fills its share of it
├── ReplicaFailed         502  the replica ended the connection, or its response is no HTTP
├── RouteRefused          503  the control plane has requests refused
├── TooManyConnections    503  the route's callers have too many connections
├── BodyNotKept           503  unfinished bodies fill the space that they may
├── TasksAway             503  the control plane, which keeps tasks, does not respond
├── NoCapacity            503  it could not be answered in time
├── NotReady              503  no replica became ready in time
├── RouteClosed           503  the route, or this gateway, is going away
└── DeadlineExceeded      504  the request's time is over
BadRoutesFile                  the file of routes is invalid
"""

from __future__ import annotations


class GatewayError(Exception):
    """Base of the errors with which the gateway itself responds."""

    code = "gateway_error"
    status = 500

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.retry_after_s = retry_after_s


class BadRequest(GatewayError):
    """The bytes are not a request that every reader would read in the same way. The connection is
    closed."""

    code = "bad_request"
    status = 400


class RequestSlow(BadRequest):
    """The header, or a body, does not arrive in the time it has."""

    code = "request_slow"
    status = 408


class TargetTooLong(BadRequest):
    """The request target is longer than the limit."""

    code = "target_too_long"
    status = 414


class HeadTooLarge(BadRequest):
    """The header section has too many bytes or lines."""

    code = "head_too_large"
    status = 431


class ExpectationRefused(BadRequest):
    """An expectation that is not 100-continue."""

    code = "expectation_refused"
    status = 417


class UnknownCoding(BadRequest):
    """A Transfer-Encoding other than `chunked`."""

    code = "unknown_transfer_coding"
    status = 501


class MethodRefused(BadRequest):
    """CONNECT: this is no forward proxy."""

    code = "method_refused"
    status = 501


class BadTimeout(GatewayError):
    """The caller's own time limit cannot be read. Correct the header, or leave it out."""

    code = "bad_timeout"
    status = 400


class UnknownVersion(GatewayError):
    """The request names a version that the deployment does not have, now or any longer."""

    code = "unknown_version"
    status = 400


class Unauthorized(GatewayError):
    """The route admits only requests with one of its bearer tokens, or its revision's secret."""

    code = "unauthorized"
    status = 401


class PageRefused(GatewayError):
    """A browser sends it for a web page, on a route that only services of its bento call."""

    code = "page_refused"
    status = 403


class Misdirected(GatewayError):
    """A browser sends it to a name that is none of ours: an attacker's name may lead here."""

    code = "misdirected_request"
    status = 421


class NotYours(GatewayError):
    """A service of a bento is called by what is no replica of its deployment."""

    code = "not_yours"
    status = 403


class CrossSite(GatewayError):
    """A browser sends it for a page of another origin, which the service's CORS does not allow."""

    code = "cross_site"
    status = 403


class PathReserved(GatewayError):
    """These paths are between a replica and its gateways only."""

    code = "not_found"
    status = 404


class UnknownHost(GatewayError):
    """No deployment is called by this `Host` at an address that several share."""

    code = "unknown_host"
    status = 404


class BodyTooLarge(GatewayError):
    """The body is, or grew, larger than the route's limit."""

    code = "body_too_large"
    status = 413


class PickleRefused(GatewayError):
    """A pickle runs code when it is read, so only services of the same bento may send one."""

    code = "pickle_refused"
    status = 415


class ShareFull(GatewayError):
    """The route's queue has as many requests, or bytes, as it may, and the caller's organization
    fills its share. Come back after `Retry-After`."""

    code = "share_full"
    status = 429


class ReplicaFailed(GatewayError):
    """The replica got the request and then went away, or responded with something that is not
    HTTP."""

    code = "replica_failed"
    status = 502


class RouteRefused(GatewayError):
    """The control plane has every request refused; the message is its sentence."""

    code = "route_refused"
    status = 503


class TooManyConnections(GatewayError):
    """The route's callers hold as many connections as they may."""

    code = "too_many_connections"
    status = 503


class BodyNotKept(GatewayError):
    """Bodies wait until they are whole, and there is no space for more of them. Come back after
    `Retry-After`, or send faster."""

    code = "body_not_kept"
    status = 503


class TasksAway(GatewayError):
    """The control plane keeps tasks and does not respond now. Nothing was taken; try again."""

    code = "tasks_away"
    status = 503


class NoCapacity(GatewayError):
    """So much waits ahead, or so little time remains, that the request could not be answered in
    time: it was not tried. Come back after `Retry-After`."""

    code = "no_capacity"
    status = 503


class NotReady(GatewayError):
    """No replica is ready, and waiting longer is not allowed."""

    code = "not_ready"
    status = 503


class RouteClosed(GatewayError):
    """The route was removed, or the gateway stops."""

    code = "route_closed"
    status = 503


class DeadlineExceeded(GatewayError):
    """The request's time was over before its response began: in the queue, or in its replica."""

    code = "deadline_exceeded"
    status = 504


class BadRoutesFile(Exception):
    """The file of routes cannot be served; the message says what to write instead."""
