"""Nobody is asked for whose page a browser sends a request, or by which name."""

from hotplate.machine.access import cross_site
from hotplate.machine.access.own_hosts import OwnHosts

INSTEAD = [
    (cross_site, "is_foreign", lambda *_, **__: False),
    (OwnHosts, "refusal", lambda *_, **__: ""),
]
