"""What a node makes available to the replicas of a bento, which only read it: the bento's files,
its environment, its models with a door to the agent that leads to them, models of hubs, and our own
modules.

What one replica then has for itself is made of that (`own_files`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path

from hotplate.cache.errors import CacheError
from hotplate.cache.origins.hub_url import HubUrl
from hotplate.cache.origins.hubs import Hubs
from hotplate.deploy.phases import Recorder
from hotplate.deploy.workload import Workload
from hotplate.serving.replica.bento import Bento, read_bento
from hotplate.serving.replica.environments.builder import Environment, EnvironmentBuilder
from hotplate.serving.replica.model_folders import ModelFolders, Models, bring_tree
from hotplate.serving.replica.node_agent import NodeAgent
from hotplate.serving.replica.payload import make_payload
from hotplate.serving.replica.secret_values import SecretSet
from hotplate.serving.replica.variables import build_variables

log = logging.getLogger(__name__)


class NodeFiles:
    """Brings them side by side: each call is of one part. All raise `PrepareFailed`."""

    def __init__(
        self, environments: EnvironmentBuilder, agent: NodeAgent, payload: Path, hubs: Hubs
    ) -> None:
        """`payload` is a folder for our own modules; bentos may name models of `hubs`."""
        self._environments = environments
        self._agent = agent
        self._payload = payload
        self._hubs = hubs
        self._models = ModelFolders(agent)

    async def bento(self, workload: Workload) -> Bento:
        """Its files, all of them, and what they say."""
        tree = await bring_tree(self._agent, workload.bento_manifest, wait="all")
        return await asyncio.to_thread(read_bento, Path(tree.root), self._hubs)

    async def models(self, workload: Workload, socket: Path, recorder: Recorder) -> Models:
        """Their files, while weights may still arrive; with a door to them at `socket`."""
        return await self._models.bring(workload, socket, recorder)

    async def hub_model(self, model: HubUrl) -> Mapping[str, str] | None:
        """The paths of its files by their URLs; None where they cannot be had now: BentoML then
        downloads the model itself, with the deployment's own token."""
        try:
            return await self._agent.pull_to_disk(str(model))
        except (CacheError, OSError) as error:
            log.warning("%s is left to BentoML to download: %s", model, error)
            return None

    async def environment(
        self, workload: Workload, bento: Bento, secrets: SecretSet, recorder: Recorder
    ) -> Environment:
        """Its Python environment, built if nobody has it; `secrets` are for the build."""
        return await self._environments.ensure(
            workload.owned_by,
            bento.folder,
            bento.image,
            build_variables(workload, bento.envs, secrets.env),
            recorder.building,
            secrets,
        )

    async def payload(self) -> Path:
        """The folder with our own modules."""
        return await asyncio.to_thread(make_payload, self._payload)

    async def close(self) -> None:
        """Stop watching what arrives; replicas go on running."""
        await self._models.close()
