"""recorder.toml: what it may not say, and that the error names the key and the value."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from recorder.settings import load, parse
from recorder.stream_map import CHANGES
from support.paths import ROOT
from support.recorder import recorder_world
from veen.objects.port import FileSettings
from veen.system.config import BadSettings

EXAMPLE = ROOT / "docs" / "recorder.example.toml"
A, B = "aa" * 32, "bb" * 32
ONE = {"name": "record/a", "event_types": ["x"]}
PRINCIPAL = {"name": "p", "token_sha256": A, "scopes": ["record/*"]}


def tables(**changes: Any) -> dict[str, Any]:
    return changes


@pytest.mark.parametrize(
    ("changes", "detail"),
    [
        pytest.param(tables(zone=""), "zone = ''", id="empty zone"),
        pytest.param(tables(zone="Plant 1"), "zone = 'Plant 1'", id="zone with a space"),
        pytest.param(tables(zoen="x"), "zoen = 'x': unknown key", id="unknown key"),
        pytest.param(tables(admins=["zz"]), "admins = 'zz': expected 64 hex digits", id="no key"),
        pytest.param(
            tables(admins=[A, A]), "admins = .* expected each principal once", id="admin twice"
        ),
        pytest.param(tables(hub={}), r"hub\.url is missing", id="no hub"),
        pytest.param(tables(hub=7), "hub = 7: expected a table", id="hub is no table"),
        pytest.param(
            tables(hub={"url": "ftp://x", "hub_id": A, "client": "c"}),
            "hub.url = 'ftp://x'",
            id="no http",
        ),
        pytest.param(
            tables(hub={"url": "http://x", "hub_id": A[:-2], "client": "c"}),
            "hub.hub_id = 'a",
            id="short hub_id",
        ),
        pytest.param(tables(streams=[{"name": "app/a"}]), "streams.1..name = 'app/a'", id="root"),
        pytest.param(
            tables(streams=[{"name": "record/", "event_types": ["x"]}]),
            "name = 'record/'",
            id="no name",
        ),
        pytest.param(
            tables(streams=[{"name": "record/a", "event_types": []}]),
            "event_types = ..: expected at least one",
            id="no types",
        ),
        pytest.param(
            tables(streams=[ONE | {"event_types": ["x", "x"]}]),
            "'x': expected each value once",
            id="type twice",
        ),
        pytest.param(
            tables(streams=[ONE, {"name": "record/b", "event_types": ["x"]}]),
            "'x' is mapped to record/a and to record/b",
            id="type in two streams",
        ),
        pytest.param(
            tables(streams=[ONE, ONE | {"event_types": ["y"]}]),
            "record/a is configured twice",
            id="stream twice",
        ),
        pytest.param(
            tables(streams=[ONE | {"producers": [A, A]}]),
            "producers = .*expected each principal once",
            id="producer twice",
        ),
        pytest.param(
            tables(admins=[A], streams=[ONE | {"producers": [A]}]),
            "is an admin and a producer of record/a",
            id="producer is admin",
        ),
        pytest.param(
            tables(streams=[ONE | {"retention": "30d"}]), "retention = '30d'", id="retention"
        ),
        pytest.param(
            tables(streams=[ONE | {"max_payload_bytes": 1_000_001}]),
            "max_payload_bytes = 1000001: expected a whole number from 1 to 1000000",
            id="bound too high",
        ),
        pytest.param(
            tables(streams=[ONE | {"max_payload_bytes": True}]), "= True", id="bound is no number"
        ),
        pytest.param(
            tables(streams=[{"name": "record/a", "event_types": ["query.result"]}]),
            "'query.result' belongs to record/query/results",
            id="reserved type elsewhere",
        ),
        pytest.param(
            tables(streams=[{"name": "record/query/replays", "event_types": ["x"]}]),
            "record/query/replays holds query.replayed and nothing else",
            id="other type in a reserved stream",
        ),
        pytest.param(
            tables(streams=[{"name": "record/query/audit/b", "event_types": ["x"]}]),
            "record/query/audit/b holds query.audit",
            id="other type in the audit",
        ),
        pytest.param(
            tables(
                streams=[
                    {"name": CHANGES, "event_types": ["stream.renamed", "stream.split"]}
                    | {"producers": [A]}
                ]
            ),
            "only admins append",
            id="producer of changes",
        ),
        pytest.param(
            tables(checkpoint={"every_minutes": 0, "every_events": 0}),
            "no checkpoint would ever",
            id="no cadence",
        ),
        pytest.param(
            tables(anchor={"kind": "chain"}), "kind = 'chain': expected 'file'", id="anchor"
        ),
        pytest.param(tables(anchor={"kind": "rfc3161"}), "needs tsa_url", id="no TSA"),
        pytest.param(
            tables(anchor={"kind": "none", "path": "x"}), "path goes with", id="path of no kind"
        ),
        pytest.param(tables(objects={"url": "ftp://x"}), "objects.url = 'ftp://x'", id="objects"),
        pytest.param(tables(query={"listen": "8090"}), "query.listen = '8090'", id="listen"),
        pytest.param(tables(query={"engine": "spark"}), "query.engine = 'spark'", id="engine"),
        pytest.param(tables(query={"workers": 0}), "query.workers = 0", id="workers"),
        pytest.param(tables(query={"tls_cert": "c"}), "go together", id="cert alone"),
        pytest.param(
            tables(query={"principals": [{"name": "p", "scopes": ["record/*"]}]}),
            "token_sha256, public_key or both",
            id="unknown by anything",
        ),
        pytest.param(
            tables(query={"principals": [PRINCIPAL | {"roles": ["boss"]}]}), "'boss'", id="role"
        ),
        pytest.param(
            tables(query={"principals": [PRINCIPAL | {"scopes": []}]}), "scopes = ..", id="scopes"
        ),
        pytest.param(
            tables(query={"principals": [PRINCIPAL, PRINCIPAL | {"name": "q"}]}),
            "principals.token_sha256 = 'aa.* p and q both have it",
            id="shared token",
        ),
        pytest.param(
            tables(query={"principals": [PRINCIPAL, PRINCIPAL | {"token_sha256": B}]}),
            "principals.name = 'p'",
            id="principal twice",
        ),
    ],
)
def test_refuses(changes: dict[str, Any], detail: str) -> None:
    with pytest.raises(BadSettings, match=detail):
        parse(recorder_world.a_document(**changes), Path("/etc"))


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadSettings, match=r"none\.toml: No such file"):
        load(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("zone = ")
    with pytest.raises(BadSettings, match=r"bad\.toml: not TOML"):
        load(tmp_path / "bad.toml")


def test_the_example_says_every_key_and_its_default() -> None:
    result = load(EXAMPLE)
    bare = parse(recorder_world.a_document(), EXAMPLE.parent)
    assert result.checkpoint == bare.checkpoint
    assert result.anchor == bare.anchor
    assert result.index == bare.index
    for name in ("listen", "workers", "threads", "row_budget", "max_rows", "engine", "results",
                 "max_descriptor_bytes", "spark_master"):  # fmt: skip
        assert getattr(result.query, name) == getattr(bare.query, name)
    assert isinstance(result.objects, FileSettings)
    assert result.hub.client == EXAMPLE.parent / "client"


def test_every_key_that_is_known_is_in_the_example() -> None:
    """Also those that stand in a comment; an unknown one in a comment is found by reading it."""
    text = EXAMPLE.read_text()
    whole = re.sub(r"(?m)^# (\w+ = )", r"\1", text)
    document = tomllib.loads(whole)
    document["anchor"] = {"kind": "rfc3161"} | {
        key: value for key, value in document["anchor"].items() if key not in ("kind", "path")
    }
    parse(document, EXAMPLE.parent)


def test_the_profile_does_not_depend_on_order_and_does_on_everything_else() -> None:
    def profile(*streams: dict[str, Any]) -> bytes:
        return parse(recorder_world.a_document(streams=list(streams)), Path("/")).profile_id()

    other: dict[str, Any] = {"name": "record/b", "event_types": ["y", "z"], "producers": [A, B]}
    turned = other | {"event_types": ["z", "y"], "producers": [B, A]}
    assert profile(ONE, other) == profile(turned, ONE)
    changed = [
        other | {"producers": [A]}, other | {"event_types": ["y"]}, other | {"name": "record/c"},
        other | {"max_payload_bytes": 5},
    ]  # fmt: skip
    assert len({profile(ONE, item) for item in (other, *changed)}) == 5


def test_the_recorders_own_streams_are_always_there() -> None:
    streams = parse(recorder_world.a_document(admins=[A]), Path("/")).streams
    assert streams.stream_of("query.submitted").name == "record/query/requests"
    assert streams.stream_of("query.audit").name == "record/query/audit/access"
    assert streams.writers(streams.stream_of("stream.split")) == (bytes.fromhex(A),)


def test_a_reserved_stream_may_be_given_its_producers() -> None:
    own = {"name": "record/query/audit/q", "event_types": ["query.audit"], "producers": [A]}
    streams = parse(recorder_world.a_document(streams=[own]), Path("/")).streams
    assert streams.stream_of("query.audit").name == "record/query/audit/q"
    assert streams.named("record/query/audit/access") is None
