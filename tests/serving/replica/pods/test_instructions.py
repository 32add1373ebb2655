"""What the pod of a build is told."""

from __future__ import annotations

from pathlib import Path

from hotplate.deploy.cluster.builds.objects import job
from hotplate.deploy.cluster.builds.spec import BuildSettings, JobBuild
from hotplate.serving.replica.environments.spec import EnvironmentSpec
from hotplate.serving.replica.inside.building.program import BuildInstructions
from hotplate.serving.replica.pods.instructions import command, instructions
from hotplate.serving.replica.pods.runtimes import RuntimeImage
from hotplate.serving.replica.secret_values import SecretSet

RUNTIME = RuntimeImage("3.11", "runtime:1")
FILES = ["src/service.py", "env/python/requirements.txt"]
SPEC = EnvironmentSpec("digest", Path("elsewhere"), "3.11", build_env={"SIZE": "small"})


def told(spec: EnvironmentSpec = SPEC, files: list[str] = FILES) -> BuildInstructions:
    return instructions(spec, files, RUNTIME, {"UV_INDEX": "http://own"}, "pass", 1 << 30)


def test_it_reads_below_its_volume_and_writes_where_its_pod_may() -> None:
    names = [step["name"] for step in told().steps]
    assert names == ["uv venv", "uv pip install", "compile"]
    venv, install, compiled = told().steps
    assert venv["argv"][:2] == ("uv", "venv")
    assert venv["argv"][-3:] == ("--python", "python3.11", "/hotplate/env")
    assert install["argv"][-1] == "/hotplate/bento/env/python/requirements.txt"
    assert install["cwd"] == "/hotplate/bento/src"
    assert compiled["argv"][0] == "python3.11"
    assert "elsewhere" not in repr(told())


def test_a_bento_without_sources_has_its_wheels_beside_its_requirements() -> None:
    install = told(files=["env/python/requirements.txt"]).steps[1]
    assert install["cwd"] == "/hotplate/bento/env/python"


def test_its_variables_are_those_of_all_builds_and_its_bento_s() -> None:
    env = told().env
    assert (env["UV_INDEX"], env["SIZE"]) == ("http://own", "small")
    assert env["HOME"] == "/scratch/home" and env["HOME"] in told().folders
    assert env["UV_CACHE_DIR"] == "/scratch/packages"
    assert env["PATH"] == "/hotplate/env/bin"  # the image's comes after it


def test_commands_of_its_author_have_a_copy_of_the_bento_to_write_to() -> None:
    assert told().copies == {}
    spec = EnvironmentSpec("digest", Path(), "3.11", post_commands=("touch here",))
    assert told(spec).copies == {"/hotplate/bento": "/scratch/bento"}
    assert told(spec).steps[2]["cwd"] == "/scratch/bento"


def test_values_of_secrets_are_masked_and_files_of_them_lie_in_memory() -> None:
    secrets = SecretSet({"TOKEN": "t0ken", "EMPTY": ""}, {"key.txt": "a key"}, "versions")
    given = told(EnvironmentSpec("digest", Path(), "3.11", secrets=secrets))
    assert sorted(given.masked) == ["a key", "t0ken"]
    assert given.env["TOKEN"] == "t0ken"
    assert given.env["BENTOML_HOME"] in given.folders
    assert given.secrets["folder"].startswith("/dev/shm/")
    assert told().secrets == {}


def test_its_program_finds_what_its_job_mounts() -> None:
    program = command(RUNTIME)
    made = job(JobBuild("d" * 32, "acme", "runtime:1", program, "", {}), BuildSettings())
    container = made["spec"]["template"]["spec"]["containers"][0]
    mounts = {each["mountPath"] for each in container["volumeMounts"]}
    interpreter, _, _, given, door, ended = program
    assert interpreter == "python3.11"
    assert {str(Path(given).parent), str(Path(door).parent)} <= mounts
    assert ended == container["terminationMessagePath"]
