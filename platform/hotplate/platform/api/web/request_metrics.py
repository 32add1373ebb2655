"""What Prometheus sees of the API's requests. Their routes are patterns, never paths that came."""

from __future__ import annotations

from time import perf_counter

from aiohttp import web
from aiohttp.typedefs import Middleware
from prometheus_client import CollectorRegistry, Counter, Histogram

from hotplate.platform.api.web.requests import Handler

NO_ROUTE = "none"
"""The route of paths that nothing answers, or another control plane does."""
METHODS = frozenset(("DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"))
OTHER = "other"
_SECONDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)


class RequestMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = Counter(
            "hotplate_api_requests",
            "Requests of the API that were answered, by the pattern of their route",
            ["method", "route", "status"],
            registry=registry,
        )
        self._seconds = Histogram(
            "hotplate_api_request_seconds",
            "From a request of the API until its answer was made, or a stream had ended",
            ["method", "route"],
            buckets=_SECONDS,
            registry=registry,
        )
        self._refused_logins = Counter(
            "hotplate_api_refused_logins",
            "Wrong tokens, links, sign-ins and codes of logins",
            registry=registry,
        )

    def refused_login(self) -> None:
        self._refused_logins.inc()

    def middleware(self) -> Middleware:
        """Counts all that is answered, and goes around all others."""

        @web.middleware
        async def count(request: web.Request, handler: Handler) -> web.StreamResponse:
            began, status = perf_counter(), 0
            try:
                response = await handler(request)
                status = response.status
                return response
            except web.HTTPException as answered:
                status = answered.status
                raise
            finally:
                self._count(request, status, perf_counter() - began)

        return count

    def _count(self, request: web.Request, status: int, lasted_s: float) -> None:
        method = request.method if request.method in METHODS else OTHER
        resource = request.match_info.route.resource
        route = NO_ROUTE if resource is None else resource.canonical
        # 0: its caller had left.
        self._requests.labels(method, route, str(status or "left")).inc()
        self._seconds.labels(method, route).observe(lasted_s)
