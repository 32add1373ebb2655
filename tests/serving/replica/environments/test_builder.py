from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from hotplate.serving.replica.environments.builder import Environment, EnvironmentBuilder
from hotplate.serving.replica.environments.folder import SHARED
from hotplate.serving.replica.environments.spec import REQUIREMENTS, read_spec
from hotplate.serving.replica.errors import EnvironmentFailed
from hotplate.serving.replica.inside.building.diagnosis import diagnose
from tests.support.cache.web import WebServer
from tests.support.replica.bentos import write_bento, write_wheel
from tests.support.replica.replicas import environments_in
from tests.support.small_disk import MIB, small_disk


def image_of(bento: Path) -> dict[str, Any]:
    image: dict[str, Any] = yaml.safe_load((bento / "bento.yaml").read_text())["image"]
    return image


def bento_with_wheel(folder: Path, code: str = "", **more: Any) -> Path:
    """A bento whose only requirement is a wheel that it brings itself: no network is needed."""
    bento = write_bento(folder, "", requirements="./wheels/tiny-1.0-py3-none-any.whl\n", **more)
    write_wheel(bento / "src" / "wheels", "tiny", code)
    return bento


async def ensure(environments: EnvironmentBuilder, bento: Path, **env: str) -> Environment:
    return await environments.ensure("acme", bento, image_of(bento), env)


def imports_tiny(environment: Environment) -> bool:
    command = [str(environment.python), "-c", "import tiny"]
    return subprocess.run(command, check=False).returncode == 0


def digest(bento: Path, **env: str) -> str:
    return read_spec(bento, image_of(bento), env).digest


def pipes(folder: Path, *names: str) -> list[Path]:
    """Named pipes, with which a build and its test wait for each other."""
    for name in names:
        os.mkfifo(folder / name)
    return [folder / name for name in names]


async def test_who_waits_for_a_build_is_told_where_its_output_goes(tmp_path: Path) -> None:
    environments = environments_in(tmp_path)
    bento = bento_with_wheel(tmp_path / "bento", image={"post_commands": ["echo risen; exit 1"]})
    told: list[str] = []
    for _ in range(2):
        with pytest.raises(EnvironmentFailed):
            await environments.ensure("acme", bento, image_of(bento), {}, told.append)
    log = environments.folder("acme", digest(bento)).log
    assert told == [str(log), "", str(log), ""]
    assert log.read_text().splitlines().count("risen") == 1, "the first build's is gone"


async def test_who_finds_an_environment_is_told_of_no_build(tmp_path: Path) -> None:
    environments = environments_in(tmp_path)
    bento = bento_with_wheel(tmp_path / "bento")
    told: list[str] = []
    await ensure(environments, bento)
    await environments.ensure("acme", bento, image_of(bento), {}, told.append)
    assert told == []


async def test_an_environment_has_what_the_bento_requires_byte_compiled(tmp_path: Path) -> None:
    environments = environments_in(tmp_path)
    environment = await ensure(environments, bento_with_wheel(tmp_path / "bento"))
    assert environment.built
    assert imports_tiny(environment)
    assert list(environment.root.rglob("tiny.*.pyc"))


async def test_at_once_or_later_one_recipe_is_built_once(tmp_path: Path) -> None:
    environments = environments_in(tmp_path)
    one = bento_with_wheel(tmp_path / "one")
    same = bento_with_wheel(tmp_path / "same")
    first, second = await asyncio.gather(ensure(environments, one), ensure(environments, same))
    assert first == second
    again = await ensure(environments_in(tmp_path), one)
    assert (again.python, again.built) == (first.python, False)


async def test_a_caller_that_gives_up_leaves_the_build_to_the_others(tmp_path: Path) -> None:
    environments = environments_in(tmp_path)
    building, go_on = pipes(tmp_path, "building", "go_on")
    bento = bento_with_wheel(
        tmp_path / "bento", image={"post_commands": [f"echo > {building}; read x < {go_on}"]}
    )
    impatient = asyncio.create_task(ensure(environments, bento))
    patient = asyncio.create_task(ensure(environments, bento))
    await asyncio.to_thread(building.read_text)
    impatient.cancel()
    await asyncio.to_thread(go_on.write_text, "\n")
    assert imports_tiny(await patient)
    assert impatient.cancelled()


async def test_what_a_kill_left_half_built_is_never_used(tmp_path: Path) -> None:
    bento = bento_with_wheel(tmp_path / "bento")
    folder = tmp_path / "environments" / "acme" / digest(bento)
    (folder / "dead" / "venv" / "bin").mkdir(parents=True)
    (folder / "dead" / "venv" / "bin" / "python").write_text("#!/bin/false")
    (folder / "ready.0123").write_text('{"attempt": "dead", "interpreter": "/bin/sh"}')
    environment = await ensure(environments_in(tmp_path), bento)
    assert environment.built
    assert imports_tiny(environment)
    assert not (folder / "dead").exists()


async def test_an_environment_whose_interpreter_is_gone_is_built_again(tmp_path: Path) -> None:
    environments = environments_in(tmp_path)
    bento = bento_with_wheel(tmp_path / "bento")
    attempt = (await ensure(environments, bento)).root.parent.name
    environments.folder("acme", digest(bento)).note_ready(attempt, tmp_path / "uninstalled")
    environment = await ensure(environments, bento)
    assert environment.built
    assert imports_tiny(environment)


async def test_post_commands_run_in_the_environment_beside_the_bento(tmp_path: Path) -> None:
    bento = bento_with_wheel(
        tmp_path / "bento",
        image={"post_commands": ['python -c \'import tiny, sys; open(sys.prefix + "/p", "w")\'']},
    )
    bento.chmod(0o555)
    environment = await ensure(environments_in(tmp_path), bento)
    assert (environment.root / "p").exists()
    assert [path.name for path in environment.root.parent.iterdir()] == ["venv"]


async def test_a_failed_step_says_why_and_can_be_tried_again(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    bento = bento_with_wheel(
        tmp_path / "bento", image={"post_commands": [f"echo looking; test -e {marker}"]}
    )
    environments = environments_in(tmp_path)
    with pytest.raises(EnvironmentFailed, match=r"test -e .* failed") as failure:
        await ensure(environments, bento)
    assert failure.value.log == ("looking",)
    assert "$ " in environments.folder("acme", digest(bento)).log.read_text()
    marker.touch()
    assert imports_tiny(await ensure(environments, bento))


async def test_a_python_that_is_not_here_is_named_and_not_downloaded(tmp_path: Path) -> None:
    bento = bento_with_wheel(tmp_path / "bento", image={"python_version": "3.99"})
    with pytest.raises(EnvironmentFailed, match=r"Python 3\.99 is not on this machine") as failure:
        await ensure(environments_in(tmp_path), bento)
    assert not failure.value.retry


async def test_closing_kills_what_is_being_built(tmp_path: Path) -> None:
    (pipe,) = pipes(tmp_path, "pid")
    bento = bento_with_wheel(
        tmp_path / "bento", image={"post_commands": [f"echo $$ > {pipe}; sleep 60"]}
    )
    environments = environments_in(tmp_path)
    waiting = asyncio.create_task(ensure(environments, bento))
    pid = int(await asyncio.to_thread(pipe.read_text))
    await environments.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_a_build_stops_before_it_fills_the_disk_and_goes_on_when_there_is_room(
    tmp_path: Path,
) -> None:
    (tmp_path / "disk").mkdir()
    with small_disk(tmp_path / "disk", 40 * MIB) as disk:
        environments = environments_in(disk, disk_reserve_bytes=10 * MIB)
        filler = disk / "filler"
        greedy = f"[ -e {disk}/done ] || (head -c {35 * MIB} /dev/zero > {filler}; sleep 60)"
        bento = bento_with_wheel(tmp_path / "bento", image={"post_commands": [greedy]})
        with pytest.raises(EnvironmentFailed, match="are kept free") as failed:
            await ensure(environments, bento)
        assert failed.value.no_room
        with pytest.raises(EnvironmentFailed, match="are kept free"):  # nothing is begun now
            await ensure(environments, bento)
        filler.unlink()
        (disk / "done").touch()
        assert imports_tiny(await ensure(environments, bento))


async def test_a_disk_that_is_full_fails_a_build_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    with small_disk(tmp_path / "disk", 40 * MIB) as disk:
        environments = environments_in(disk, disk_reserve_bytes=1)
        fills = f"head -c {60 * MIB} /dev/zero > {disk}/filler"
        bento = bento_with_wheel(tmp_path / "bento", image={"post_commands": [fills]})
        with pytest.raises(EnvironmentFailed, match=r"full.*; free some space") as failed:
            await ensure(environments, bento)
        assert failed.value.no_room


async def test_environments_that_nobody_uses_go_but_for_the_last_used_ones(tmp_path: Path) -> None:
    root = tmp_path / "environments" / "acme"
    environments = environments_in(tmp_path)
    bentos = [bento_with_wheel(tmp_path / f"bento{n}", f"number = {n}") for n in range(3)]
    made = [await ensure(environments, bento) for bento in bentos]
    same = shutil.copytree(bentos[0], tmp_path / "same")
    assert (await ensure(environments, same)).python == made[0].python
    (root / ".gone-by-a-kill").mkdir()
    assert not await environments.sweep(lambda: {"same"}, 1, used_before=1e9), "all are younger"
    assert not await environments.sweep(lambda: None, spare=0), "it is not known what is wanted"
    would = await environments.sweep(lambda: {"same"}, spare=1, dry_run=True)
    assert made[1].python.exists()
    gone = await environments.sweep(lambda: {"same"}, spare=1)
    assert gone == would
    assert list(gone) == [made[1].digest] and gone[made[1].digest] > 0
    assert [each.python.exists() for each in made] == [True, False, True]
    assert not list(root.glob(".gone-*"))
    assert (await ensure(environments, bentos[1])).built
    await environments.sweep(lambda: {"bento1"}, spare=0)
    assert {path.name for path in root.iterdir()} == {".used", made[1].digest}


async def test_of_an_organization_that_is_gone_nothing_stays(tmp_path: Path) -> None:
    """Another one of its name finds no environment that was built with what it must not have."""
    root, packages = tmp_path / "environments", tmp_path / "packages"
    for name in ("acme", "rival", SHARED):
        for folder in (root / name / ".used", root / name / "digest", packages / name):
            folder.mkdir(parents=True)
            (folder / "file").write_text("of " + name)
    (packages / ".gone-by-a-kill").mkdir()
    environments = environments_in(tmp_path, packages=packages)

    async def owners() -> set[str]:
        (root / "new" / ".used").mkdir(parents=True)  # an organization that was made just now
        return {"rival"}

    gone = await environments.gone(owners)
    assert gone == ["acme"]
    await environments.forget(gone)
    assert {path.name for path in root.iterdir()} == {"new", "rival", SHARED}
    assert {path.name for path in packages.iterdir()} == {"rival", SHARED}
    assert (root / "rival" / "digest" / "file").exists()


async def test_a_folder_named_after_an_organization_stays_that_ones_own(tmp_path: Path) -> None:
    """Older versions named it so; replicas run from there."""
    root = tmp_path / "environments"
    older = environments_in(tmp_path)
    bento = bento_with_wheel(tmp_path / "bento")
    made = await ensure(older, bento)
    for _ in range(2):
        environments = environments_in(tmp_path)
        environments.adopt("acme", "uid-1", made_at=0)
        found = await environments.ensure("uid-1", bento, image_of(bento), {})
        assert (found.root, found.built) == (made.root, False)
    later = environments_in(tmp_path)
    later.adopt("acme", "uid-2", made_at=0)  # it has the name now

    async def owners() -> set[str]:
        return {"uid-2"}

    assert await later.gone(owners) == ["acme"]
    assert (await later.ensure("uid-2", bento, image_of(bento), {})).owner == "uid-2"
    await later.forget(["acme"])
    assert not (root / "acme").exists()


async def test_a_folder_with_what_is_older_than_the_organization_is_not_its_own(
    tmp_path: Path,
) -> None:
    bento = bento_with_wheel(tmp_path / "bento")
    await ensure(environments_in(tmp_path), bento)
    environments = environments_in(tmp_path)
    environments.adopt("acme", "uid-1", made_at=4e9)
    assert (await environments.ensure("uid-1", bento, image_of(bento), {})).owner == "uid-1"


async def test_a_build_sees_package_indexes_but_not_the_platforms_credentials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("UV_INDEX_TEST", "kept")
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    seen = tmp_path / "seen"
    bento = bento_with_wheel(tmp_path / "bento", image={"post_commands": [f"env > {seen}"]})
    await ensure(environments_in(tmp_path), bento, TOKEN="for the build")
    names = {line.partition("=")[0] for line in seen.read_text().splitlines()}
    assert {"UV_INDEX_TEST", "TOKEN", "VIRTUAL_ENV", "PATH"} <= names
    assert not {"AWS_SECRET_ACCESS_KEY", "PYTHONDONTWRITEBYTECODE"} & names


@pytest.mark.parametrize(
    "line",
    [
        "bentoml @ file:///home/someone/bentoml",
        "file:///home/someone/x.whl",
        "-e file:///home/someone/x",
        "-e /home/someone/x",
        "/home/someone/x-1.0-py3-none-any.whl",
    ],
)
def test_a_requirement_from_the_laptops_disk_is_refused_by_name(tmp_path: Path, line: str) -> None:
    bento = write_bento(tmp_path / "bento", "", requirements=f"a==1\n{line}  # why\n")
    with pytest.raises(EnvironmentFailed, match=r"is a file on the machine that built") as refusal:
        read_spec(bento, image_of(bento), {})
    assert line in str(refusal.value)


def test_the_digest_is_of_what_the_environment_is_made_from(tmp_path: Path) -> None:
    plain = write_bento(tmp_path / "plain", "a", requirements="# lock\na==1\n\nb==2 # via a\n")
    same = write_bento(tmp_path / "same", "other code", requirements="a==1\nb==2\n")
    assert digest(plain) == digest(same)
    others = [
        write_bento(tmp_path / "1", "", requirements="a==1\nb==3\n"),
        write_bento(
            tmp_path / "2", "", requirements="a==1\nb==2\n", image={"python_version": "3.12"}
        ),
        write_bento(
            tmp_path / "3", "", requirements="a==1\nb==2\n", image={"post_commands": ["x"]}
        ),
        bento_with_wheel(tmp_path / "4"),
        bento_with_wheel(tmp_path / "5", code="other = 1"),
    ]
    digests = [digest(plain), digest(plain, TOKEN="x"), *map(digest, others)]
    assert len(set(digests)) == len(digests)


def test_code_that_takes_part_in_the_build_makes_an_environment_of_its_own(tmp_path: Path) -> None:
    image = {"post_commands": ["python src/setup.py"]}
    one = write_bento(tmp_path / "one", "a = 1", image=image)
    two = write_bento(tmp_path / "two", "a = 2", image=image)
    assert digest(one) != digest(two)


async def test_a_version_that_is_younger_than_what_uv_remembers_of_the_index_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = "/simple/tiny/"
    remembered = {"Content-Type": "text/html", "Cache-Control": "max-age=600"}
    with WebServer({}, headers={page: remembered}) as index:
        monkeypatch.setenv("UV_DEFAULT_INDEX", f"{index.url}/simple")
        environments = environments_in(tmp_path)
        for version in ("1.0", "2.0"):
            wheel = tmp_path / write_wheel(tmp_path / "wheels", "tiny", version=version)
            index.change(f"{page}{wheel.name}", wheel.read_bytes())
            bento = write_bento(tmp_path / version, "", requirements=f"tiny=={version}\n")
            assert imports_tiny(await ensure(environments, bento))
        assert index.of("GET").count(page) == 2
        nowhere = write_bento(tmp_path / "nowhere", "", requirements="tiny==3.0\n")
        with pytest.raises(EnvironmentFailed, match=r"has tiny==3\.0; check its name and version"):
            await ensure(environments, nowhere)
        assert index.of("GET").count(page) == 3, "it is asked again, and once only"


@pytest.mark.parametrize(
    ("output", "sentence", "retry"),
    [
        pytest.param(
            "error: No solution found when resolving dependencies\n"
            "  cause: Because nosuch was not found in the package registry and you require it",
            "has nosuch;",
            False,
            id="unknown package",
        ),
        pytest.param(
            "  cause: Because there is no version of bentoml==99.0 and you require bentoml==99.0",
            "has bentoml==99.0;",
            False,
            id="unknown version",
        ),
        pytest.param(
            "error: Failed to fetch: http://x/simple/bentoml/\n cause: tcp connect error",
            "cannot be reached",
            True,
            id="no network",
        ),
        pytest.param(
            "error: failed to write file: No space left on device (os error 28)",
            "disk is full",
            True,
            id="disk full",
        ),
        pytest.param(
            "error: Failed to inspect Python interpreter from search path at `/shims/python3.11`\n"
            "  cause: Querying Python failed\n [stderr]\n python3.11: command not found",
            "Python 3.11 is not on this machine",
            False,
            id="a name for a Python that is not there",
        ),
        pytest.param("  Failed to build `networkx==1`", "networkx==1", False, id="no compiler"),
        pytest.param(
            "error: No solution found when resolving dependencies\n  cause: Because a==1 depends",
            "contradict",
            False,
            id="conflict",
        ),
        pytest.param(
            "error: Couldn't parse requirement\n  cause: Expected one of `@`\n   x y",
            "(error: Couldn't parse requirement; cause: Expected one of `@`)",
            False,
            id="what is no requirement",
        ),
        pytest.param(
            "Segmentation fault", "failed (Segmentation fault)", False, id="anything else"
        ),
    ],
)
def test_what_uv_prints_becomes_one_sentence(output: str, sentence: str, retry: bool) -> None:
    diagnosis = diagnose(output, "3.11", "uv pip install")
    assert sentence in diagnosis.sentence
    assert diagnosis.retry == retry


@pytest.mark.parametrize("content", [b"six\n" * (5 << 20), b"six\xff"], ids=["20 MiB", "no text"])
def test_requirements_without_end_are_refused(tmp_path: Path, content: bytes) -> None:
    bento = write_bento(tmp_path / "bento", "")
    (bento / REQUIREMENTS).write_bytes(content)
    with pytest.raises(
        EnvironmentFailed, match=r"requirements.txt (has more than 16 MiB|is no text)"
    ):
        read_spec(bento, image_of(bento), {})
