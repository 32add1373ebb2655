"""A claim is what kubelet asks for a pod that the ticket is for, at a place of that pod."""

from __future__ import annotations

from pathlib import Path

import pytest

from hotplate.cache.errors import BadVolume, CacheError, TicketRefused
from hotplate.cache.volumes.claim import Claim, checked, checked_place, pod_of
from hotplate.cache.volumes.kubelet import Kubelet
from hotplate.cache.volumes.ticket import Ticket, Use, key_of, signed

KEY = key_of("token")
KUBELET = Kubelet(Path("/var/lib/kubelet"), "node1", lambda folder: folder)
TARGET = "/var/lib/kubelet/pods/uid/volumes/kubernetes.io~csi/hotplate/mount"
TICKET = Ticket(
    namespace="tenant",
    service_account="account",
    organization="acme",
    deployment="hello",
    revision=1,
    service="Hello",
    use=Use.REPLICA,
    bento="b" * 64,
    environment="e" * 64,
)
ATTRIBUTES = {
    "hotplate.dev/ticket": signed(TICKET, KEY),
    "csi.storage.k8s.io/ephemeral": "true",
    "csi.storage.k8s.io/pod.name": "pod",
    "csi.storage.k8s.io/pod.namespace": "tenant",
    "csi.storage.k8s.io/serviceAccount.name": "account",
}


def test_the_pod_that_a_ticket_is_for_may_have_its_volume() -> None:
    assert checked("csi-1", TARGET, ATTRIBUTES, KUBELET, KEY) == Claim(
        "csi-1", Path(TARGET), TICKET
    )
    assert pod_of(ATTRIBUTES) == "tenant/pod"


@pytest.mark.parametrize(
    ("change", "kind", "reason"),
    [
        ({"csi.storage.k8s.io/pod.namespace": "other"}, TicketRefused, "copied from another one"),
        ({"csi.storage.k8s.io/serviceAccount.name": "x"}, TicketRefused, "copied from another one"),
        ({"csi.storage.k8s.io/pod.namespace": ""}, TicketRefused, "copied from another one"),
        ({"hotplate.dev/ticket": "x.y"}, TicketRefused, "not signed"),
        ({"csi.storage.k8s.io/ephemeral": "false"}, BadVolume, "no PersistentVolume"),
        ({"csi.storage.k8s.io/ephemeral": ""}, BadVolume, "no PersistentVolume"),
    ],
)
def test_any_other_is_refused(change: dict[str, str], kind: type[CacheError], reason: str) -> None:
    with pytest.raises(kind, match=reason):
        checked("csi-1", TARGET, {**ATTRIBUTES, **change}, KUBELET, KEY)


@pytest.mark.parametrize("volume", ["", "../csi", "a/b", ".hidden", "a" * 129])
def test_a_volume_has_a_plain_name(volume: str) -> None:
    with pytest.raises(BadVolume, match="no name of a volume"):
        checked_place(volume, TARGET, KUBELET)


@pytest.mark.parametrize(
    "target",
    [
        "/etc",
        "/var/lib/kubelet/pods",
        "/var/lib/kubelet/pods/uid",
        "/var/lib/kubelet/pods/uid/../../../../etc",
        "pods/uid/x",
        "",
    ],
)
def test_a_volume_lies_below_its_pods_folder(target: str) -> None:
    with pytest.raises(BadVolume, match="is not below /var/lib/kubelet/pods; check --kubelet"):
        checked_place("csi-1", target, KUBELET)
