"""Pods reach the store and the database that stand in for those of an installation."""

from __future__ import annotations

import pytest

from tests.cluster.installation import Installation
from tests.cluster.kubectl import Kubectl
from tests.cluster.pods import printed_by
from tests.cluster.stand_ins import DATABASE_URL, STORE_URL, STORE_VARIABLES, StandIns

pytestmark = [pytest.mark.cluster, pytest.mark.together]
_USES = f"""\
import fsspec, psycopg
with fsspec.open("{STORE_URL}/one", "w") as file:
    file.write("kept")
print(fsspec.open("{STORE_URL}/one", "r").open().read())
with psycopg.connect("{DATABASE_URL}") as connection:
    print(connection.execute("select current_database()").fetchone()[0])
"""


def test_a_pod_keeps_blobs_and_rows_and_both_are_started_once(
    cluster: Installation, kubectl: Kubectl, namespace: str
) -> None:
    stand_ins = StandIns(cluster.daemons)
    list(stand_ins.ensure())
    assert list(stand_ins.ensure()) == []
    command = ["python3.11", "-c", _USES]
    printed = printed_by(kubectl, namespace, "hotplate", *command, variables=STORE_VARIABLES)
    assert printed.splitlines() == ["kept", "hotplate"]
