"""The store's secrets, as replicas that start ask for them."""

from __future__ import annotations

from collections.abc import Sequence

from hotplate.deploy.errors import PrepareFailed
from hotplate.platform.errors import NotFound, SecretsUnreadable, StoreFailed
from hotplate.platform.store.org_secrets import Secrets
from hotplate.serving.replica.secret_values import SecretSource, SecretValue


class StoredSecrets(SecretSource):
    """Where the database does not answer, starts wait for it: no service is at fault."""

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets

    async def values(self, organization: str, names: Sequence[str]) -> Sequence[SecretValue]:
        try:
            return await self._secrets.run(self._secrets.values, organization, names)
        except NotFound as error:
            raise PrepareFailed(f"Its {error}.") from error
        except (SecretsUnreadable, StoreFailed) as error:
            raise PrepareFailed(f"Its secrets cannot be had: {error}.", no_room=True) from error
