"""The control plane's account, with the rights that the chart gives it and no others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

from tests.cluster.helm import Helm
from tests.cluster.kubectl import Kubectl

_NAME = "hotplate-control-plane"


@contextmanager
def control_plane_account(
    helm: Helm, kubectl: Kubectl, release: str, folder: Path
) -> Iterator[Path]:
    """The kubeconfig of the account of a release of which there is nothing else."""
    ours = {_NAME, f"{release}-control-plane", f"{release}-tenant"}
    rendered = [
        each
        for each in helm.rendered(release, {}, folder)
        if each["metadata"]["name"] in ours
        and (each["kind"] == "ServiceAccount" or "namespace" not in each["metadata"])
    ]
    kubectl("create", "namespace", release)
    kubectl.apply(rendered)
    try:
        yield _kubeconfig(helm.kubeconfig, kubectl, release, folder / "account")
    finally:
        given = json.dumps({"apiVersion": "v1", "kind": "List", "items": rendered})
        kubectl("delete", "--wait=false", "--filename=-", given=given)
        kubectl("delete", "namespace", release, "--wait=false")


def _kubeconfig(admins: Path, kubectl: Kubectl, release: str, place: Path) -> Path:
    token = kubectl("create", "token", _NAME, f"--namespace={release}", "--duration=1h").strip()
    said = yaml.safe_load(admins.read_text())
    (user,) = {context["context"]["user"] for context in said["contexts"]}
    place.write_text(yaml.safe_dump({**said, "users": [{"name": user, "user": {"token": token}}]}))
    return place
