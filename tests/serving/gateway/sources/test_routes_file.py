from __future__ import annotations

from pathlib import Path

import pytest

from hotplate.serving.gateway.errors import BadRoutesFile
from hotplate.serving.gateway.protocol.routes import SHARED, ReplicaRoute, Route
from hotplate.serving.gateway.sources.routes_file import parse, read

FILE = Path("/etc/hotplate/routes.toml")
WHOLE = """
admin = "127.0.0.1:9900"
[[deployment]]
name = "chat"
listen = "127.0.0.1:9001"
timeout_s = 60
queue_limit = 1000
organization_header = "X-Organization"
priority_header = true
[deployment.weights]
acme = 1
small = 0.5
[[deployment.replica]]
address = "127.0.0.1:9101"
concurrency = 2
[[deployment.replica]]
address = "[::1]:9102"

[[deployment]]
name = "tts/eu"
listen = "[::]:9002"
hold_limit_s = 5.5
queue_limit_bytes = 1_000_000
body_limit_bytes = 0
may_run_twice = true
ready_path = "/v1/readyz"
token_digests = ["ABCDEF0123456789abcdef0123456789abcdef0123456789abcdef0123456789"]
tls_certificate = "tts.pem"
tls_key = "/keys/tts.pem"
"""


def test_every_key_of_the_file_comes_to_its_route() -> None:
    file = parse(WHOLE, FILE)
    assert file.admin == "127.0.0.1:9900"
    chat, tts = file.routes
    assert chat == Route(
        "chat",
        "127.0.0.1",
        9001,
        replicas=(
            ReplicaRoute("127.0.0.1:9101", "127.0.0.1:9101", 2),
            ReplicaRoute("[::1]:9102", "[::1]:9102", 1),
        ),
        timeout_s=60,
        queue_limit=1000,
        organization_header="X-Organization",
        priority_header=True,
        weights=(("acme", 1), ("small", 0.5)),
    )
    assert not any(replica.worker for replica in chat.replicas)
    assert tts == Route(
        "tts/eu",
        "::",
        9002,
        hold_limit_s=5.5,
        queue_limit_bytes=1_000_000,
        body_limit_bytes=0,
        may_run_twice=True,
        ready_path="/v1/readyz",
        token_digests=("abcdef0123456789" * 4,),
        tls_certificate="/etc/hotplate/tts.pem",
        tls_key="/keys/tts.pem",
    )


def test_deployments_with_hosts_share_the_files_own_address() -> None:
    file = parse(
        """
listen = "0.0.0.0:443"
tls_certificate = "all.pem"
[[deployment]]
name = "chat"
hosts = ["Chat.example.com", "chat.local."]
[[deployment]]
name = "tts"
listen = "127.0.0.1:9001"
""",
        FILE,
    )
    (shared,) = file.shared
    assert shared == Route(SHARED, "0.0.0.0", 443, tls_certificate="/etc/hotplate/all.pem")
    chat, tts = file.routes
    assert (chat.port, chat.hosts) == (0, ("chat.example.com", "chat.local"))
    assert (tts.port, tts.hosts) == (9001, ())


def test_a_file_may_serve_none_but_not_be_empty() -> None:
    assert parse('admin = "127.0.0.1:9900"', FILE).routes == ()
    assert parse("deployment = []", FILE).routes == ()
    with pytest.raises(BadRoutesFile, match="is empty"):
        parse("", FILE)


HOSTED = '[[deployment]]\nname = "chat"\nhosts = ["a.b"]\n'
DEPLOYMENT = '[[deployment]]\nname = "chat"\nlisten = "h:1"\n'


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[[deployments]]", "no key is called 'deployments'; did you mean 'deployment'?"),
        (f"{DEPLOYMENT}timeout = 3", "deployment 'chat': no key is called 'timeout'; did you mean"),
        (f"{DEPLOYMENT}zzz = 3", "known are name, listen, hosts, timeout_s"),
        (f"{DEPLOYMENT}[[deployment.replica]]\nadress = 'h:2'", "did you mean 'address'?"),
        ("[[deployment]]\nlisten = 'h:1'", "[[deployment]] number 1: name is missing"),
        ("[[deployment]]\nname = 'chat'", "'chat': it has neither, and needs one: listen, an add"),
        (f"{DEPLOYMENT}hosts = ['a']", "'chat': it has both, and needs one: listen, an address"),
        (HOSTED, "'chat' has hosts, and the file has no listen; say at its top"),
        (f"listen = 'h:1'\n{HOSTED}tls_certificate = 'a'", "belongs to the file's listen"),
        (f"listen = 'h:1'\n{HOSTED}{HOSTED}".replace("chat", "two", 1), "hosts = 'a.b' is given"),
        (f"listen = 'h:1'\n{DEPLOYMENT}", "listen = 'h:1' is given twice"),
        (f"tls_certificate = 'a'\n{DEPLOYMENT}", "tls_certificate needs the file's listen"),
        ("[[deployment]]\nname = 'chat'\nhosts = []", "must be a list of host names, without"),
        ("[[deployment]]\nname = 'chat'\nhosts = ['a:80']", "hosts = ['a:80'] must be a list of"),
        ("[[deployment]]\nname = 'chat'\nhosts = ['a/b']", "hosts = ['a/b'] must be a list of"),
        (f"{DEPLOYMENT}[[deployment.replica]]", "[[deployment.replica]] number 1: address is miss"),
        (f"{DEPLOYMENT}timeout_s = 0", "timeout_s = 0 must be a number of seconds above 0"),
        (f"{DEPLOYMENT}timeout_s = '60'", "timeout_s = '60' must be"),
        (f"{DEPLOYMENT}timeout_s = inf", "timeout_s = inf must be"),
        (f"{DEPLOYMENT}timeout_s = true", "timeout_s = True must be"),
        (f"{DEPLOYMENT}queue_limit = -1", "queue_limit = -1 must be a whole number"),
        (f"{DEPLOYMENT}queue_limit = 1.5", "queue_limit = 1.5 must be a whole number"),
        (f"{DEPLOYMENT}priority_header = 'u'", "priority_header = 'u' must be true or false"),
        (f"{DEPLOYMENT}may_run_twice = 1", "may_run_twice = 1 must be true or false"),
        (f"{DEPLOYMENT}organization_header = 'a b'", "must be the name of a header field"),
        (f"{DEPLOYMENT}ready_path = 'ready'", "must be a path that ends in /readyz"),
        (f"{DEPLOYMENT}token_digests = ['secret']", "must be a list of SHA-256 digests"),
        (f"{DEPLOYMENT}tls_key = 'k.pem'", "tls_key = 'k.pem' needs a tls_certificate"),
        (f"{DEPLOYMENT}[deployment.weights]\nacme = 0", "weights = {'acme': 0} must be a table"),
        (f"{DEPLOYMENT}replica = 3", "replica = 3 must be tables"),
        (f"{DEPLOYMENT}[[deployment.replica]]\naddress = 'h'", "address = 'h' must be an address"),
        (
            f"{DEPLOYMENT}[[deployment.replica]]\naddress = 'h:1'\nconcurrency = 0",
            "concurrency = 0 must be a whole number of slots",
        ),
        (f"{DEPLOYMENT}" + "[[deployment.replica]]\naddress = 'h:2'\n" * 2, "'h:2' is given twice"),
        (DEPLOYMENT * 2, "name = 'chat' is given twice"),
        (f"admin = 'h:1'\n{DEPLOYMENT}", "listen = 'h:1' is given twice"),
        ("admin = '::1:99'", "admin = '::1:99' must be an address"),
        ("[[deployment]]\nname = 'a b'", "name = 'a b' must be a name of letters"),
        ("deployment = [3]", "deployment = [3] must be tables"),
        ("name: chat", "is not TOML"),
    ],
)
def test_a_mistake_is_told_in_one_sentence_with_file_key_and_value(content: str, said: str) -> None:
    with pytest.raises(BadRoutesFile) as raised:
        parse(content, FILE)
    sentence = str(raised.value)
    assert sentence.startswith(str(FILE))
    assert said in sentence
    assert "\n" not in sentence


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadRoutesFile, match=r"none\.toml cannot be read: No such file"):
        read(tmp_path / "none.toml")
    (tmp_path / "routes.toml").write_bytes(b"\xff")
    with pytest.raises(BadRoutesFile, match="not UTF-8"):
        read(tmp_path / "routes.toml")
