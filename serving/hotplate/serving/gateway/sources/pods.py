"""The pods behind the EndpointSlices of Kubernetes, and what of them is put into routes. Pure."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hotplate.machine.address import Address
from hotplate.serving.gateway.protocol.routes import Route

SERVICE_LABEL = "kubernetes.io/service-name"
PORT_NAME = "http"


@dataclass(frozen=True)
class Pod:
    """A pod with an address, whether Kubernetes calls it ready or not."""

    name: str
    uid: str
    address: str
    """host:port"""
    terminating: bool = False


def service_of(item: Mapping[str, Any]) -> str:
    """`namespace/name` of the Service whose slice it is. Raises KeyError."""
    metadata = item["metadata"]
    return f"{metadata['namespace']}/{metadata['labels'][SERVICE_LABEL]}"


def pods_in(item: Mapping[str, Any]) -> Sequence[Pod]:
    """The pods of a slice. Raises KeyError, TypeError."""
    ports = [port["port"] for port in item.get("ports") or () if port.get("name") == PORT_NAME]
    found = []
    for endpoint in item.get("endpoints") or ():
        target = endpoint.get("targetRef") or {}
        if not ports or target.get("kind") != "Pod" or not endpoint.get("addresses"):
            continue
        terminating = bool((endpoint.get("conditions") or {}).get("terminating"))
        address = str(Address(endpoint["addresses"][0], ports[0]))
        found.append(Pod(target["name"], target["uid"], address, terminating))
    return found


def with_pods(
    routes: Iterable[Route], pods: Mapping[str, Iterable[Pod]], answered: Container[Pod]
) -> tuple[Route, ...]:
    """The routes with the pods of their services beside the replicas that the table names, of which
    those stay that are still there, or of a Service that is not known. Of the others only those
    that have `answered`, as they were before they terminated, may have requests."""
    return tuple(_with_pods(route, pods, answered) if route.pods else route for route in routes)


def alive(pod: Pod) -> Pod:
    """The pod as it was before it terminated."""
    return replace(pod, terminating=False)


def _with_pods(route: Route, pods: Mapping[str, Iterable[Pod]], answered: Container[Pod]) -> Route:
    found = [(s, pod) for s in route.pods for pod in sorted(pods.get(s.service, ()), key=_name)]
    there = {pod.uid: pod for _, pod in found}
    all_known = all(source.service in pods for source in route.pods)
    named = [
        replace(each, draining=each.draining or (pod is not None and pod.terminating))
        for each in route.replicas
        if (pod := there.get(each.uid)) is not None or not all_known
    ]
    uids = {each.uid for each in named}
    others = [(source, pod) for source, pod in found if pod.uid not in uids]
    replicas = [
        replace(
            source.like, id=pod.name, uid=pod.uid, address=pod.address, draining=pod.terminating
        )
        for source, pod in others
        if alive(pod) in answered
    ]
    starting = tuple(pod.address for _, pod in others if alive(pod) not in answered)
    return replace(route, replicas=(*named, *replicas), starting=starting)


def _name(pod: Pod) -> str:
    return pod.name
