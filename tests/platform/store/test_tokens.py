"""Which tokens gateways and agents are told of."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hotplate.machine.access.metrics_reader import ALL
from hotplate.platform.store.parts import Store
from hotplate.platform.store.records import MemberRole
from hotplate.platform.store.tokens import token_digest


def test_tokens_for_metrics_show_what_their_owner_may_see_now(store: Store) -> None:
    identities, add = store.identities, store.tokens.add_token
    soon, ago = (datetime.now(UTC) + timedelta(seconds=s) for s in (60, -60))
    root = identities.ensure_user("acme", "root", "")
    identities.ensure_user("acme", "ada", "")
    bob = identities.ensure_user("acme", "bob", "")
    identities.put_member(bob.organization, "bob", None, MemberRole.DEVELOPER)
    for name in ("root", "bob"):
        identities.set_operator(name, operator=True)
    add(root, "all", "operators", ["metrics"], operator=True)
    add(bob, "mine", "bobs", ["metrics"], soon)
    add(bob, "early", "earlier", ["metrics"], ago)
    add(bob, "api", "apis", ["api"], operator=True)

    def readers() -> dict[str, str]:
        return {each.digest: each.organization for each in store.tokens.metrics_readers()}

    assert readers() == {token_digest("operators"): ALL, token_digest("bobs"): "acme"}
    assert {each.expires_at for each in store.tokens.metrics_readers()} == {None, soon.timestamp()}
    identities.set_operator("root", operator=False)
    assert readers()[token_digest("operators")] == "acme"
    identities.put_member(bob.organization, "bob", None, MemberRole.ENDPOINT_USER)
    identities.remove_member(root.organization, "root")
    assert readers() == {}
