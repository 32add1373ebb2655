"""What pages let people do, with a real browser: what is changed, what is refused, and what two
people change at once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from playwright.async_api import Request

from hotplate.platform.controller.interface import Rollout
from hotplate.platform.store.parts import Store
from hotplate.platform.store.records import MemberRole
from tests.browser.visitor import Visitor, chromium, needs_chromium
from tests.support.control_plane.cloud import Cloud, Refused
from tests.support.control_plane.controller_fake import FakeController

pytestmark = needs_chromium
ONE, V2 = "/api/v1/hotplate/deployments/echo", "/api/v2/deployments/echo"
CANARY = {"versions": {"next": {"bento": "echo:v1", "weight": 30, "services": {}}}}


def changed(value: str) -> dict[str, Any]:
    """A request that makes another revision."""
    return {"bento": "echo:v1", "envs": [{"name": "LEVEL", "value": value}]}


@asynccontextmanager
async def looking(cloud: Cloud) -> AsyncIterator[Visitor]:
    url = str(cloud.server.make_url("/")).rstrip("/")
    async with chromium() as browser, Visitor.coming(browser, url) as visitor:
        await visitor.sign_in(cloud.token)
        yield visitor


@pytest.fixture
async def visitor(cloud: Cloud, controller: FakeController) -> AsyncIterator[Visitor]:
    """An admin; there is a deployment with two revisions."""
    await cloud.push_bento()
    await cloud.deploy()
    await controller.settled()
    await cloud.call("PUT", V2, changed("1"))
    await controller.settled()
    async with looking(cloud) as visitor:
        yield visitor


@pytest.fixture
async def operator(cloud: Cloud, store: Store) -> AsyncIterator[Visitor]:
    async with Cloud(cloud.server, store, name="root", operator=True) as root, looking(root) as one:
        yield one


async def press(visitor: Visitor, name: str, confirm: str = "") -> None:
    """A button of the page, and the one of the dialog that it opens."""
    await visitor.page.locator("main").get_by_role("button", name=name, exact=True).click()
    if confirm:
        dialog = visitor.page.get_by_role("dialog")
        await dialog.get_by_role("button", name=confirm, exact=True).click()
        await dialog.wait_for(state="detached")


async def said(visitor: Visitor, text: str) -> None:
    await visitor.page.locator("#notices").get_by_text(text).first.wait_for()


async def latest(cloud: Cloud) -> Any:
    return await cloud.call("GET", ONE)


# Secrets -----------------------------------------------------------------------------------


async def test_a_secret_is_made_changed_and_deleted_and_its_value_never_shown(
    visitor: Visitor, cloud: Cloud
) -> None:
    form = visitor.page.locator("main form")
    await visitor.open("/secrets")
    await form.get_by_label("Name").fill("not a name!")
    await form.get_by_label("Key", exact=True).fill("PASSWORD")
    await form.get_by_label("Value").fill("first-hunter")
    await press(visitor, "Save")
    await said(visitor, "name: ")
    await form.get_by_label("Name").fill("keys")
    await press(visitor, "Save")
    await said(visitor, "Secret keys is kept.")
    row = visitor.page.locator("tr[data-secret=keys]")
    await row.get_by_text("PASSWORD").wait_for()
    await press(visitor, "New values of keys")
    await form.get_by_role("heading", name="New values of keys").wait_for()
    await form.get_by_label("Value").fill("second-hunter")
    await press(visitor, "Save")
    await visitor.page.locator("#notices").get_by_text("is kept").nth(1).wait_for()
    assert "hunter" not in await visitor.page.content()
    assert "hunter" not in await visitor.page.evaluate(
        "[...document.querySelectorAll('input')].map(one => one.value).join()"
    )
    await press(visitor, "Delete keys", "Delete")
    await row.wait_for(state="detached")
    assert (await cloud.call("GET", "/api/v1/org_secrets?all=true"))["items"] == []
    await form.get_by_label("Name").fill("cert")
    await form.locator("select").select_option("mountfile")
    await form.get_by_label("In the folder").fill("$BENTOML_HOME/keys")
    await form.get_by_label("Key", exact=True).fill("a.pem")
    await form.get_by_label("Value").fill("one\ntwo")
    await press(visitor, "Save")
    await said(visitor, "Secret cert is kept.")
    (kept,) = (await cloud.call("GET", "/api/v1/org_secrets?all=true"))["items"]
    assert (kept["content"]["type"], kept["content"]["path"]) == ("mountfile", "$BENTOML_HOME/keys")


async def test_two_who_change_one_secret_are_told(visitor: Visitor, cloud: Cloud) -> None:
    path, content = "/api/v1/org_secrets", {"type": "env", "items": [{"key": "KEY", "value": "v"}]}
    await cloud.call("POST", path, {"name": "keys", "content": content})
    form = visitor.page.locator("main form")
    await visitor.open("/secrets")
    await press(visitor, "New values of keys")
    await form.get_by_role("heading", name="New values of keys").wait_for()
    await form.get_by_label("Description").fill("mine")
    await cloud.call("PATCH", f"{path}/keys", {"description": "theirs"})
    await press(visitor, "Save")
    await said(visitor, "nothing was changed")
    await visitor.page.locator("tr[data-secret=keys]").get_by_text("theirs").wait_for()
    assert await form.get_by_label("Description").input_value() == "mine"
    await press(visitor, "Save")
    await said(visitor, "Secret keys is kept.")
    assert (await cloud.call("GET", f"{path}/keys"))["description"] == "mine"


# Quotas, members ---------------------------------------------------------------------------


async def test_a_quota_is_set_and_two_who_set_it_see_both_values(
    operator: Visitor, cloud: Cloud, store: Store
) -> None:
    limit = operator.page.locator("[data-field='limit.gpus']")
    entered = operator.page.locator("form").get_by_label("GPUs")
    await operator.open("/organization")
    await press(operator, "Change")
    await entered.fill("2")
    await press(operator, "Save")
    await said(operator, "The quota is kept.")
    await operator.page.wait_for_selector("[data-field='limit.gpus'][data-value='2']")
    await press(operator, "Change")
    async with Cloud(cloud.server, store, name="other", operator=True) as other:
        await other.call("PUT", "/api/v1/hotplate/quotas/acme", {"limit": {"gpus": 5}})
    await entered.fill("3")
    await press(operator, "Save")
    await said(operator, "nothing was changed")
    await operator.page.wait_for_selector("[data-field='limit.gpus'][data-value='5']")
    assert await entered.input_value() == "3"
    await press(operator, "Save")
    await operator.page.wait_for_selector("[data-field='limit.gpus'][data-value='3']")
    assert await limit.inner_text() == "3"


async def test_two_who_describe_an_organization_see_both_texts(
    operator: Visitor, cloud: Cloud, store: Store
) -> None:
    await operator.open("/organization")
    await press(operator, "Describe it")
    async with Cloud(cloud.server, store, name="other", operator=True) as other:
        path = "/api/v1/hotplate/organizations/acme"
        await other.call("PATCH", path, {"description": "theirs"})
    text = operator.page.get_by_label("Description")
    await text.fill("mine")
    await press(operator, "Save")
    await said(operator, "nothing was changed")
    await operator.page.wait_for_selector("[data-field=description][data-value=theirs]")
    assert await text.input_value() == "mine"
    await press(operator, "Save")
    await operator.page.wait_for_selector("[data-field=description][data-value=mine]")


async def test_a_member_is_added_given_another_role_and_removed(
    visitor: Visitor, cloud: Cloud
) -> None:
    path = "/api/v1/hotplate/organizations/acme/members"
    await visitor.open("/organization")
    await visitor.page.get_by_label("Name").fill("bob")
    await press(visitor, "Add a member")
    await said(visitor, "bob is a member.")
    role = visitor.page.get_by_label("Role of bob")
    await role.select_option("admin")
    await said(visitor, "bob is admin now.")
    assert (await cloud.call("GET", f"{path}/bob"))["role"] == "admin"
    await visitor.page.wait_for_function("!document.querySelector('main[aria-busy]')")
    await cloud.call("PUT", f"{path}/bob", {"role": "endpoint-user"})
    await role.select_option("developer")
    await said(visitor, "somebody else has made bob endpoint-user meanwhile, which was admin")
    assert (await cloud.call("GET", f"{path}/bob"))["role"] == "endpoint-user"
    bob = visitor.page.locator("tr[data-member=bob]")
    await bob.get_by_role("button", name="Remove").click()
    await visitor.page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    await bob.wait_for(state="detached")


# Settings, and ends ------------------------------------------------------------------------


async def test_settings_that_the_api_refuses_are_refused_in_its_words(
    visitor: Visitor, cloud: Cloud
) -> None:
    await visitor.open("/deployments/echo/settings")
    await visitor.page.get_by_label("Replicas, at least").fill("5")
    await visitor.page.get_by_label("at most").fill("2")
    await press(visitor, "Save")
    scaling = {"min_replicas": 5, "max_replicas": 2}
    with pytest.raises(Refused) as refused:
        await cloud.call("PUT", V2, {**changed("1"), "services": {"Echo": {"scaling": scaling}}})
    await said(visitor, refused.value.message)
    assert await visitor.page.get_by_label("at most").input_value() == "2"
    assert (await latest(cloud))["revision"] == 2


async def test_settings_that_are_saved_leave_a_canary_as_it_is(
    cloud: Cloud, controller: FakeController
) -> None:
    await cloud.push_bento()
    await cloud.deploy(canary=CANARY)
    await controller.settled()
    before = (await latest(cloud))["canary"]
    assert before["versions"]["next"]["weight"] == 30
    async with looking(cloud) as visitor:
        await visitor.open("/deployments/echo/settings")
        await visitor.page.get_by_label("Labels").fill("team=search")
        await press(visitor, "Save")
        await said(visitor, "The settings are saved")
        assert "weight: 30" in await visitor.text("pre[aria-label='As YAML']")
    after = await latest(cloud)
    assert (after["labels"], after["canary"]) == ([{"key": "team", "value": "search"}], before)


async def test_it_is_terminated_started_restarted_and_deleted_by_its_name(
    visitor: Visitor, cloud: Cloud, controller: FakeController
) -> None:
    await visitor.open("/deployments/echo/settings")
    for name, wanted, revision in (
        ("Restart", "running", 3),
        ("Terminate", "terminated", 3),
        ("Start", "running", 3),
    ):
        await press(visitor, name, name)
        await said(visitor, f"{name}: done")
        await controller.settled()
        now = await latest(cloud)
        assert (now["wanted"], now["revision"] >= revision) == (wanted, True)
        await visitor.page.wait_for_selector(f"[data-field=wanted][data-value={wanted}]")
    await press(visitor, "Delete")
    dialog = visitor.page.get_by_role("dialog")
    delete = dialog.get_by_role("button", name="Delete", exact=True)
    assert await delete.is_disabled()
    await dialog.get_by_role("textbox").fill("ech")
    assert await delete.is_disabled()
    await dialog.get_by_role("textbox").fill("echo")
    await delete.click()
    await visitor.page.wait_for_url("**/deployments")
    await controller.settled()
    with pytest.raises(Refused, match="404"):
        await latest(cloud)


# Roll-outs ---------------------------------------------------------------------------------


async def test_a_roll_out_is_paused_resumed_aborted_and_undone(
    visitor: Visitor, cloud: Cloud, controller: FakeController, store: Store
) -> None:
    controller.goes_on(Rollout("revision 3 is starting"))
    await cloud.call("PUT", V2, changed("2"))
    await controller.settled()
    await visitor.open("/deployments/echo/revisions")
    for name, phase, is_paused in (("Pause", "paused", True), ("Resume", "starting", False)):
        await press(visitor, name, name.lower())
        await said(visitor, f"{name.lower()}: done")
        latest_one = store.deployments.find(cloud.user.organization.id, "echo").latest
        assert latest_one.paused is is_paused
        controller.last_look = {"phase": phase}  # as the controller says then
        await visitor.page.wait_for_selector(f"[data-field=phase][data-value={phase}]")
    controller.last_look = {}
    await press(visitor, "Abort", "abort")
    await said(visitor, "abort: done")
    outcomes = (await cloud.call("GET", f"{ONE}/revisions"))["items"]
    assert outcomes[0]["outcome"] == "failed"
    controller.goes_on(None)
    await press(visitor, "Undo", "undo")
    await said(visitor, "undo: done")
    await controller.settled()
    now = await latest(cloud)
    assert (now["revision"], now["serving"]) == (outcomes[0]["number"] + 1,) * 2


async def test_a_roll_out_that_is_another_one_by_now_is_not_undone(
    visitor: Visitor, cloud: Cloud, controller: FakeController
) -> None:
    await visitor.open("/deployments/echo/revisions")
    await press(visitor, "Undo")
    await cloud.call("PUT", V2, changed("3"))
    await controller.settled()
    before = (await latest(cloud))["revision"]
    await visitor.page.get_by_role("dialog").get_by_role("button", name="undo").click()
    await said(visitor, "nothing was changed")
    assert (await latest(cloud))["revision"] == before


async def test_weights_are_kept_when_the_slider_is_let_go_and_a_version_is_promoted(
    cloud: Cloud, controller: FakeController
) -> None:
    await cloud.push_bento()
    await cloud.deploy(canary=CANARY)
    await controller.settled()
    controller.ready_replicas = {"next": 1}
    puts: list[str] = []

    def asked(request: Request) -> None:
        puts.extend([request.url] if request.method == "PUT" else [])

    async def weight() -> int:
        found: int = (await latest(cloud))["canary"]["versions"]["next"]["weight"]
        return found

    async with looking(cloud) as visitor:
        visitor.page.on("request", asked)
        await visitor.open("/deployments/echo/revisions")
        slider = visitor.page.get_by_role("slider")
        box = await slider.bounding_box()
        assert box is not None
        mouse, middle = visitor.page.mouse, box["y"] + box["height"] / 2
        await mouse.move(box["x"] + box["width"] * 0.3, middle)
        await mouse.down()
        for share in (0.4, 0.5, 0.6):
            await mouse.move(box["x"] + box["width"] * share, middle)
        await visitor.page.get_by_text("main has").wait_for()
        assert (await weight(), puts) == (30, [])
        await mouse.up()
        await said(visitor, "The weights are kept.")
        assert 50 < await weight() < 70
        assert len(puts) == 1
        await press(visitor, "Promote", "promote")
        await said(visitor, "promote: done")
        await controller.settled()
    assert (await latest(cloud))["canary"] is None


# Who may not -------------------------------------------------------------------------------


async def test_who_may_not_has_no_button_for_it(cloud: Cloud, store: Store) -> None:
    await cloud.push_bento()
    role = MemberRole.DEVELOPER
    async with Cloud(cloud.server, store, name="dev", role=role) as dev, looking(dev) as visitor:
        await visitor.open("/organization")
        for name in ("Change", "Add a member", "Remove", "Describe it"):
            assert await visitor.page.get_by_role("button", name=name).count() == 0
    role = MemberRole.ENDPOINT_USER
    async with Cloud(cloud.server, store, name="eve", role=role) as eve, looking(eve) as visitor:
        await visitor.open("/bentos")
        await visitor.page.wait_for_selector("tr[data-bento]")
        assert await visitor.page.get_by_role("button", name="Delete").count() == 0


@pytest.mark.parametrize(
    ("path", "button"), [("/deployments/echo/settings", "Terminate"), ("/bentos", "Delete echo:v1")]
)
async def test_who_may_no_longer_is_told_so_on_the_page(
    visitor: Visitor, cloud: Cloud, store: Store, path: str, button: str
) -> None:
    await visitor.open(path)
    await press(visitor, button)
    async with Cloud(cloud.server, store, name="boss") as boss:
        ada = "/api/v1/hotplate/organizations/acme/members/ada"
        await boss.call("PUT", ada, {"role": "endpoint-user"})
        await visitor.page.get_by_role("dialog").locator("form button").first.click()
        await said(visitor, "needs the role 'developer'")
        assert (await latest(boss))["wanted"] == "running"
