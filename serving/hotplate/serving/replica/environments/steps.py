"""What is run to build an environment: its steps and their variables; pure.

A build on this machine (`build`) and one in a pod differ in where things lie, and in nothing else.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hotplate.serving.replica.environments.spec import REQUIREMENTS, EnvironmentSpec
from hotplate.serving.replica.inside.building.step import Step

BYTECODE = "bytecode"
"""The folder for bytecode beside what `uv` keeps of packages."""
READABLE = """\
[ -O "$1" ] && exec chmod -R a+rX "$1"
exec find "$1" -mindepth 1 -maxdepth 1 ! -type l -exec chmod -R a+rX {} +
"""
"""Lets everybody read what is ours: in a pod, the environment's own folder is the node's."""


@dataclass(frozen=True)
class BuildPlaces:
    """Where one build finds and leaves things."""

    root: Path
    """The environment."""
    interpreter: Path
    uv: Path
    packages: Path
    """Where `uv` keeps its downloads and builds."""
    bento: Path
    """The bento's files, to read."""
    sources: Path
    """The folder that its local wheels are named relative to."""
    copy: Path
    """The bento's files again, for its own commands to write."""
    work: Path
    """A folder for all other programs to be in."""
    home: Path | None
    """With `/tmp` for its own; None = home and temporary folder of the platform's user."""
    secrets_home: Path
    """`$BENTOML_HOME`, where there are files of secrets."""

    @property
    def python(self) -> Path:
        return self.root / "bin" / "python"


def steps(spec: EnvironmentSpec, places: BuildPlaces, compiler: str) -> list[Step]:
    """In this order; `compiler` is the text of `bytecode`."""
    uv, root, work = str(places.uv), str(places.root), str(places.work)
    # Another node has it in another folder.
    venv = (uv, "venv", "--relocatable", "--python", str(places.interpreter), root)
    install = (uv, "pip", "install", "--python", str(places.python))
    wanted = str(places.bento / REQUIREMENTS)
    # Else every replica would compile torch at its start.
    python = (str(places.interpreter), "-I", "-S", "-c", compiler)
    compiled = (*python, root, str(places.packages / BYTECODE))
    found = [
        Step("uv venv", venv, work),
        Step(
            "uv pip install",
            (*install, "-r", wanted),
            str(places.sources),
            refresh=("--refresh",),
        ),
        *(
            Step(command, ("/bin/sh", "-c", command), str(places.copy))
            for command in spec.post_commands
        ),
        Step("compile", compiled, work, shown="compile all modules"),
    ]
    if spec.post_commands:  # `uv` installs nothing that others may not read
        readable = ("/bin/sh", "-c", READABLE, "sh", root)
        found.append(Step("chmod", readable, work, shown="let everybody read it"))
    return found


def notes(spec: EnvironmentSpec) -> str:
    """What its log begins with."""
    skipped = "# not run, it is for a container's system:"
    return "".join(f"{skipped} {command}\n" for command in spec.skipped_commands)


def variables(
    spec: EnvironmentSpec, places: BuildPlaces, inherited: Mapping[str, str]
) -> dict[str, str]:
    """Those of all steps."""
    secrets, home = spec.secrets, places.home
    programs = (str(places.python.parent), str(places.uv.parent))
    return {
        **inherited,
        **spec.build_env,
        **{n: v for n, v in secrets.env.items() if n not in spec.build_env},
        **({"BENTOML_HOME": str(places.secrets_home)} if secrets.files else {}),
        "PATH": os.pathsep.join((*programs, inherited.get("PATH", os.defpath))),
        "VIRTUAL_ENV": str(places.root),
        **({"HOME": str(home), "TMPDIR": "/tmp"} if home is not None else {}),
        "UV_CACHE_DIR": str(places.packages),
        # A hard link would be the same file in the cache and in every other environment.
        "UV_LINK_MODE": "copy",
        "UV_PYTHON_DOWNLOADS": "never",
        "UV_NO_PROGRESS": "1",
        "NO_COLOR": "1",
    }
