"""The environment of peers that load weights: theirs on top of ours, whose torch they share."""

from __future__ import annotations

from pathlib import Path

from loadtests.harness.child_process import BIN, BenchmarkFailed, clean_environ, output_of

REQUIREMENTS = (
    "runai-model-streamer==0.17.0",
    "runai-model-streamer-s3==0.17.0",
    "fastsafetensors==0.5.0",
)
NEEDED = ("boto3", "humanize")
"""What those import beyond the packages of our environment."""
FOLDER = BIN.parent / "peers" / "weights"
"""In our own environment's folder, so that it is removed together with that."""
PYTHON = FOLDER / "bin" / "python"
INSTALL_S = 300.0


async def install(folder: Path) -> None:
    """Makes the environment if it is missing. Raises BenchmarkFailed if it cannot be made."""
    done, made_of = FOLDER / "installed", "\n".join((*REQUIREMENTS, *NEEDED))
    if done.exists() and done.read_text() == made_of:
        return
    uv = BIN / "uv"
    fill = [uv, "pip", "install", "-q", "--python", PYTHON]
    make: list[str | Path] = [uv, "venv", "-q", "--clear", "--python", BIN / "python", FOLDER]
    for command in (make, [*fill, "--no-deps", *REQUIREMENTS], [*fill, *NEEDED]):
        try:
            await output_of(
                *command,
                log=folder / "weights-install.log",
                timeout_s=INSTALL_S,
                environ=clean_environ(),
            )
        except BenchmarkFailed as error:
            raise BenchmarkFailed(f"cannot be installed: {error}") from None
    (packages,) = FOLDER.glob("lib/python3*/site-packages")
    (ours,) = BIN.parent.glob("lib/python3*/site-packages")
    # `addsitedir` also follows the links that our own environment holds.
    (packages / "ours.pth").write_text(f"import site; site.addsitedir({str(ours)!r})\n")
    done.write_text(made_of)
