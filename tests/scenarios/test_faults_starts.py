"""Services that cannot start, or do not keep running: a person is told why, wherever she looks."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hotplate.deploy.machine import detect
from tests.scenarios.bentos import IMAGE
from tests.scenarios.calling import call
from tests.scenarios.laptop import Laptop, deployed
from tests.scenarios.platform_process import Platform, until
from tests.scenarios.rough_client import Bento, RoughClient
from tests.serving.bentos import write_model

pytestmark = pytest.mark.timeout(60)

SERVICE = """

@bentoml.service(image=image)
class Kitchen:
    @bentoml.api
    def echo(self, text: str) -> str:
        return text
"""
IMPORT_RAISES = (
    IMAGE
    + """
if os.environ.get("BENTOML_CONTAINERIZED"):
    raise RuntimeError("the recipes are missing")
"""
    + SERVICE
)
CONSTRUCTION_RAISES = (
    IMAGE
    + SERVICE
    + """
    def __init__(self) -> None:
        raise ValueError("the oven is cold")
"""
)
CRASHES_LATER = (
    IMAGE
    + SERVICE
    + """
    def __init__(self) -> None:
        import threading
        threading.Timer(0.7, lambda: os.path.exists(os.environ["BROKEN"]) and os._exit(9)).start()
"""
)
READS_ITS_MODEL = (
    IMAGE
    + SERVICE
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


@pytest.fixture
async def rough(platform: Platform) -> AsyncIterator[RoughClient]:
    async with RoughClient(platform) as client:
        yield client


@pytest.fixture(scope="module")
def bento(laptop: Laptop, kitchen: str) -> Bento:
    return Bento.read(laptop.home / "bentos" / "kitchen" / "v1")


@pytest.mark.client
async def test_an_import_that_raises_is_told_wherever_a_person_looks(
    platform: Platform, laptop: Laptop, kitchen: str
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
    assert sentence in (await platform.hotplate("status", "raising"))
    assert "service.py" in (await platform.hotplate("logs", "raising"))
    assert sentence in (await platform.hotplate("events", "raising"))
    await platform.delete("raising")


async def test_a_constructor_that_raises_fails_and_the_old_revision_serves_on(
    platform: Platform, laptop: Laptop, rough: RoughClient, bento: Bento
) -> None:
    async with deployed(platform, laptop, bento.tag, "cooking") as url:
        tag = await rough.push(bento.changed("cold", {"src/service.py": CONSTRUCTION_RAISES}))
        await rough.call("PUT", "/api/v2/deployments/cooking", {"name": "cooking", "bento": tag})
        page = await rough.settled("cooking", "failed")
        assert "ValueError: the oven is cold" in page["reason"]
        assert page["reason"].endswith("revision 1 goes on serving")
        assert await call(f"{url}/echo", text="from the old one") == "from the old one"
        back = {"name": "cooking", "bento": bento.tag}
        await rough.call("PUT", "/api/v2/deployments/cooking", back)
        await rough.settled("cooking", "running")


CANNOT_BE_BUILT = {
    "a file of another machine": (
        "thing @ file:///home/ada/thing.whl\n",
        "3.11",
        "'thing @ file:///home/ada/thing.whl' is a file on the machine that built the bento",
    ),
    "a package that is nowhere": (
        "no-such-package-of-hotplate==1.0\n",
        "3.11",
        "No package index of this machine has no-such-package-of-hotplate",
    ),
    "a Python that is not here": ("", "3.99", "Python 3.99 is not on this machine; install it"),
}


@pytest.mark.parametrize(
    ("requirements", "python", "sentence"), CANNOT_BE_BUILT.values(), ids=CANNOT_BE_BUILT
)
async def test_an_environment_that_cannot_be_built_fails_once_with_the_reason(
    platform: Platform,
    rough: RoughClient,
    bento: Bento,
    requirements: str,
    python: str,
    sentence: str,
) -> None:
    image = {**bento.manifest["image"], "python_version": python}
    files = {"env/python/requirements.txt": requirements}
    name = f"unbuilt-{len(sentence)}"
    await rough.deploy("unbuilt", await rough.push(bento.changed(name, files, image=image)))
    page = await rough.settled("unbuilt", "failed")
    assert sentence in page["reason"]
    assert sentence in (await platform.hotplate("status", "unbuilt"))
    kinds = [event["kind"] for event in page["events"]]
    assert kinds.count("ReplicaCrashed") == 1, "trying again could not have helped"
    await platform.delete("unbuilt")


async def test_a_service_that_keeps_crashing_is_restarted_and_recovers(
    platform: Platform, rough: RoughClient, bento: Bento, tmp_path: Path
) -> None:
    broken = tmp_path / "broken"
    broken.touch()
    tag = await rough.push(bento.changed("crashing", {"src/service.py": CRASHES_LATER}))
    env = [{"name": "BROKEN", "value": str(broken)}]
    await rough.deploy("crashing", tag, Kitchen={"envs": env})
    page = await rough.settled("crashing", "unhealthy")
    assert "exited with code 9" in page["reason"]

    async def restarted() -> bool:
        (replica,) = await platform.replicas("crashing")
        return bool(replica["restarts"] >= 2)

    await until(restarted, 25)
    assert "restarts)" in (await platform.hotplate("status", "crashing"))
    broken.unlink()
    await rough.settled("crashing", "running")
    assert await call(f"{await platform.url_of('crashing')}/echo", text="well") == "well"
    events = [event["message"] for event in await platform.ask("crashing", "/events")]
    assert sum("exited with code 9" in message for message in events) >= 2
    await platform.delete("crashing")


async def test_a_damaged_model_is_never_served_and_can_be_mended(
    platform: Platform, rough: RoughClient, bento: Bento, tmp_path: Path
) -> None:
    folder = write_model(tmp_path / "flour", "flour", "v1")
    right = "the right weights " * 50
    (folder / "weights.txt").write_text(right)
    await rough.push_model(folder)
    (blob,) = [
        path
        for path in (platform.data / "blobs" / "blobs").rglob("*")
        if path.is_file() and path.read_bytes() == right.encode()
    ]
    blob.chmod(0o600)
    blob.write_bytes(b"T" + right.encode()[1:])

    service = bento.changed("reading", {"src/service.py": READS_ITS_MODEL})
    tag = await rough.push(service.needing("reading", "flour:v1"))
    await rough.deploy("reading", tag)
    page = await rough.settled("reading", "failed", "unhealthy")
    assert blob.name in page["reason"] or "weights.txt" in page["reason"], page["reason"]

    blob.write_bytes(right.encode())
    await rough.call("PUT", "/api/v2/deployments/reading/void_update")
    await rough.settled("reading", "running")
    assert await call(f"{await platform.url_of('reading')}/weigh") == right
    await platform.delete("reading")


async def test_a_service_waits_for_cpus_and_says_who_has_them(
    platform: Platform, rough: RoughClient, kitchen: str
) -> None:
    most = {"resources": {"cpu": 0.75 * detect().capacity.cpus}}
    wanting = {"config_overrides": most}
    await rough.deploy("first-come", kitchen, Kitchen=wanting)
    await rough.settled("first-come", "running")
    await rough.deploy("second-come", kitchen, Kitchen=wanting)

    async def told() -> bool:
        return "are taken by" in (await platform.ask("second-come"))["reason"]

    await until(told, 10)
    said = await platform.hotplate("status", "second-come")
    assert "deploying" in said
    assert "CPUs" in said
    assert "first-come" in said
    await platform.delete("first-come")
    await rough.settled("second-come", "running")
    await platform.delete("second-come")


async def test_a_service_for_which_no_machine_is_large_enough_waits_and_says_so(
    platform: Platform, rough: RoughClient, kitchen: str
) -> None:
    wanting = {"config_overrides": {"resources": {"gpu": 64}}}
    await rough.deploy("greedy", kitchen, Kitchen=wanting)

    async def told() -> bool:
        page = await platform.ask("greedy")
        return page["status"] == "deploying" and "64 GPUs: this machine has" in page["reason"]

    await until(told, 10)
    assert "64 GPUs: this machine has" in (await platform.hotplate("status"))
    await platform.delete("greedy")
