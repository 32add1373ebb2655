"""How many GPUs standbys hold, by whose they are; pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hotplate.deploy.standbys import StandbyView


def standby_gpus(
    views: Iterable[StandbyView], organizations: Mapping[str, int]
) -> dict[int, float]:
    """By the organizations' ids; `organizations` has these by what engines know them by, with ""
    for whoever has those that anybody's starts claim. A GPU counts once, however many wait on it;
    of an organization that is not named nobody is told."""
    held: dict[int, set[int]] = {}
    for view in views:
        organization_id = organizations.get(view.organization)
        if organization_id is not None and view.gpus and view.ready + view.making:
            held.setdefault(organization_id, set()).update(view.gpus)
    return {organization_id: float(len(gpus)) for organization_id, gpus in held.items()}
