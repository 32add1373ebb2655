"""What the pod of a build is told: the steps of one machine's builds, with a pod's places; pure.

The interpreter and `uv` are those of the runtime image, by name: where it has them, is its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path

from hotplate.deploy.cluster.builds.spec import ENDED_FILE, ENV_FOLDER, INSTRUCTIONS_FILE
from hotplate.deploy.cluster.objects import SCRATCH_FOLDER, VOLUME_FOLDER
from hotplate.serving.replica.environments.spec import REQUIREMENTS, EnvironmentSpec
from hotplate.serving.replica.environments.steps import BuildPlaces, notes, steps, variables
from hotplate.serving.replica.inside.building.program import BuildInstructions
from hotplate.serving.replica.memory_folders import memory_folder
from hotplate.serving.replica.pods.runtimes import RuntimeImage

PROGRAM = "hotplate.serving.replica.inside.building.program"
NODE, SCRATCH = Path(VOLUME_FOLDER), Path(SCRATCH_FOLDER)
BENTO, PARTS, DOOR = NODE / "bento", NODE / "parts", NODE / "agent.sock"
SOURCES = "src/"
CONTAINER_ENV = {"PYTHONPATH": str(PARTS)}


def command(runtime: RuntimeImage) -> tuple[str, ...]:
    """What the pod runs."""
    return (runtime.interpreter, "-m", PROGRAM, INSTRUCTIONS_FILE, str(DOOR), ENDED_FILE)


def instructions(
    spec: EnvironmentSpec,
    files: Iterable[str],
    runtime: RuntimeImage,
    inherited: Mapping[str, str],
    compiler: str,
    memory_bytes: int,
) -> BuildInstructions:
    """`files` are the paths of the bento's files; `inherited` are variables of all builds: package
    indexes above all. `compiler` is the text of `bytecode`."""
    places = _places(runtime, has_sources=any(path.startswith(SOURCES) for path in files))
    folders = [places.packages, places.home, places.work]
    if spec.secrets.files:
        folders.append(places.secrets_home)
    memory = memory_folder(SCRATCH, walled=True)
    secrets = {"folder": str(memory), "of": SCRATCH_FOLDER, "files": dict(spec.secrets.files)}
    env = variables(spec, places, inherited)
    return BuildInstructions(
        python_version=spec.python_version,
        steps=[asdict(step) for step in steps(spec, places, compiler)],
        env={**env, "PATH": str(places.root / "bin")},  # and what the image has
        memory_bytes=memory_bytes,
        notes=notes(spec),
        folders=[str(folder) for folder in folders if folder is not None],
        copies={str(places.bento): str(places.copy)} if spec.post_commands else {},
        masked=[text for text in spec.secrets.texts if text],
        secrets=secrets if spec.secrets.files else {},
    )


def _places(runtime: RuntimeImage, *, has_sources: bool) -> BuildPlaces:
    return BuildPlaces(
        root=Path(ENV_FOLDER),
        interpreter=Path(runtime.interpreter),
        uv=Path("uv"),
        packages=SCRATCH / "packages",
        bento=BENTO,
        sources=BENTO / SOURCES if has_sources else (BENTO / REQUIREMENTS).parent,
        copy=SCRATCH / "bento",
        work=SCRATCH / "work",
        home=SCRATCH / "home",
        secrets_home=SCRATCH / "bentoml",
    )
