"""Services that cannot start, or do not keep running: a person is told why, wherever she looks."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.end_to_end.any_platform import AnyPlatform
from tests.support.end_to_end.laptop import Laptop
from tests.support.end_to_end.platform_process import Platform
from tests.support.end_to_end.rough_client import Bento, RoughClient
from tests.support.patience import until
from tests.support.replica.bentos import write_model
from tests.support.services.bentos import ECHO, IMAGE
from tests.support.services.calling import call

pytestmark = pytest.mark.usefixtures("unharmed")

SOURCE = "src/service.py"
REQUIREMENTS = "env/python/requirements.txt"
IMPORT_RAISES = (
    IMAGE
    + """
if os.environ.get("BENTOML_CONTAINERIZED"):
    raise RuntimeError("the recipes are missing")
"""
    + ECHO
)
CONSTRUCTION_RAISES = (
    IMAGE
    + ECHO
    + """
    def __init__(self) -> None:
        raise ValueError("the oven is cold")
"""
)
CRASHES_LATER = (
    IMAGE
    + ECHO
    + """
    def __init__(self) -> None:
        import threading
        threading.Timer(0.7, lambda: os.path.exists(os.environ["BROKEN"]) and os._exit(9)).start()
"""
)
READS_ITS_MODEL = (
    IMAGE
    + ECHO
    + """
    flour = bentoml.models.BentoModel("flour:v1")

    def __init__(self) -> None:
        with open(self.flour.path_of("weights.txt")) as file:
            self.weights = file.read()

    @bentoml.api
    def weigh(self) -> str:
        return self.weights
"""
)


@dataclass(frozen=True)
class Begun:
    """What has been deployed and will fail: their pauses and attempts pass side by side."""

    broken: Path
    """While this file is there, `crashing` crashes."""
    blob: Path
    """The file of the model of `reading`, with a wrong byte."""


RIGHT = "the right weights " * 50
NOT_BUILT = {
    "not-here": ("thing @ file:///home/ada/thing.whl\n", "3.11"),
    "nowhere": ("no-such-package-of-hotplate==1.0\n", "3.11"),
    "no-python": ("", "3.99"),
}


@pytest.fixture(scope="module")
def begun(platform: AnyPlatform, bento: Bento, tmp_path_factory: pytest.TempPathFactory) -> Begun:
    return asyncio.run(_begin(platform, bento, tmp_path_factory.mktemp("begun")))


async def _begin(platform: AnyPlatform, bento: Bento, folder: Path) -> Begun:
    async with RoughClient(platform) as rough:
        await rough.deploy("cooking", bento.tag)
        begun = Begun(platform.shared / "broken", folder)
        if isinstance(platform, Platform):
            begun = await _begin_with_its_files(platform, rough, bento, folder)
        for name, (requirements, python) in NOT_BUILT.items():
            image = {**bento.manifest["image"], "python_version": python}
            unbuilt = bento.changed(name, {REQUIREMENTS: requirements}, image=image)
            await rough.deploy(name, await rough.push(unbuilt))
        await rough.settled("cooking", "running")
        cold = await rough.push(bento.changed("cold", {SOURCE: CONSTRUCTION_RAISES}))
        await rough.call("PUT", "/api/v2/deployments/cooking", {"bento": cold})
    return begun


async def _begin_with_its_files(
    platform: Platform, rough: RoughClient, bento: Bento, folder: Path
) -> Begun:
    """What fails as long as files say so that we write meanwhile."""
    broken = platform.shared / "broken"
    begun = Begun(broken, await _damaged_model(platform, rough, folder / "flour"))
    begun.broken.touch()
    crashing = bento.changed("crashing", {SOURCE: CRASHES_LATER})
    envs = [{"name": "BROKEN", "value": str(begun.broken)}]
    await rough.deploy("crashing", await rough.push(crashing), Kitchen={"envs": envs})
    reading = bento.changed("reading", {SOURCE: READS_ITS_MODEL})
    await rough.deploy("reading", await rough.push(reading.needing("reading", "flour:v1")))
    return begun


async def _damaged_model(platform: Platform, rough: RoughClient, folder: Path) -> Path:
    """Push a model and damage its weights where they are kept; their file there."""
    write_model(folder, "flour", "v1")
    (folder / "weights.txt").write_text(RIGHT)
    await rough.push_model(folder)
    kept = (platform.data / "blobs" / "blobs").rglob("*")
    (blob,) = [path for path in kept if path.is_file() and path.read_bytes() == RIGHT.encode()]
    blob.chmod(0o600)
    blob.write_text("T" + RIGHT[1:])
    return blob


@pytest.mark.client
async def test_an_import_that_raises_is_told_wherever_a_person_looks(
    platform: AnyPlatform, laptop: Laptop, begun: Begun
) -> None:
    folder = laptop.project("raising", IMPORT_RAISES)
    said = await laptop.bentoml("deploy", ".", "-n", "raising", folder=folder, fails=True)
    assert 'Deployment "raising" is not ready. Current status: "failed"' in said
    assert "Traceback" not in said

    sentence = "RuntimeError: the recipes are missing"
    page = await platform.ask("raising")
    assert page["status"] == "failed"
    assert sentence in page["reason"]
    assert any(sentence in line for line in page["revisions"][0]["log_tail"])
    assert sentence in await platform.status("raising")
    assert "service.py" in (await platform.hotplate("logs", "raising"))
    assert sentence in (await platform.hotplate("events", "raising"))
    await platform.delete("raising")


async def test_a_constructor_that_raises_fails_and_the_old_revision_serves_on(
    platform: AnyPlatform, rough: RoughClient, begun: Begun
) -> None:
    page = await rough.settled("cooking", "failed")
    assert "ValueError: the oven is cold" in page["reason"]
    assert page["reason"].endswith("revision 1 keeps serving")
    url = await platform.url_of("cooking")
    assert await call(f"{url}/echo", text="from the old one") == "from the old one"
    await platform.delete("cooking")


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("not-here", "'thing @ file:///home/ada/thing.whl' is a file on the machine that built"),
        ("nowhere", "No package index of this machine has no-such-package-of-hotplate"),
        ("no-python", "Python 3.99"),
    ],
)
async def test_an_environment_that_cannot_be_built_fails_once_with_the_reason(
    platform: AnyPlatform, rough: RoughClient, begun: Begun, name: str, sentence: str
) -> None:
    page = await rough.settled(name, "image-build-failed")
    assert sentence in page["reason"]
    assert sentence in await platform.status(name)
    kinds = [event["kind"] for event in page["events"]]
    assert kinds.count("ReplicaCrashed") == 1, "trying again could not have helped"
    await platform.delete(name)


@pytest.mark.one_machine("its replicas read files that it writes meanwhile")
async def test_a_service_that_keeps_crashing_is_restarted_and_recovers(
    platform: AnyPlatform, rough: RoughClient, begun: Begun
) -> None:
    async def restarted() -> bool:
        (replica,) = await platform.replicas("crashing")
        return bool(replica["restarts"] >= 2)

    await until(restarted)
    page = await rough.settled("crashing", "unhealthy")
    assert "exited with code 9" in page["reason"]
    assert "restarts)" in (await platform.hotplate("status", "crashing"))
    begun.broken.unlink()
    await rough.settled("crashing", "running")
    assert await call(f"{await platform.url_of('crashing')}/echo", text="well") == "well"
    events = [event["message"] for event in await platform.ask("crashing", "/events")]
    assert sum("exited with code 9" in message for message in events) >= 2
    await platform.delete("crashing")


@pytest.mark.one_machine("its replicas read files that it writes meanwhile")
async def test_a_damaged_model_is_never_served_and_can_be_mended(
    platform: AnyPlatform, rough: RoughClient, begun: Begun
) -> None:
    page = await rough.settled("reading", "failed")
    assert "weights.txt: chunk 0 of 1 was corrupt" in page["reason"]
    begun.blob.write_text(RIGHT)
    await rough.call("PUT", "/api/v2/deployments/reading/void_update")
    await rough.settled("reading", "running")
    assert await call(f"{await platform.url_of('reading')}/weigh") == RIGHT
    await platform.delete("reading")
