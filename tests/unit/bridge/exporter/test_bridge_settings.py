"""The configuration of a bridge: what is refused, and in which words."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from bridge.settings import BridgeZone, load, parse
from bridge.stream_map import BridgeStreamMap, StreamRoute, UnmappedStream, default_target
from support.paths import ROOT
from veen.system.config import BadSettings

EXAMPLE = ROOT / "docs" / "bridge.example.toml"
HUB, OTHER = b"\x11" * 32, b"\x22" * 32


def a_document(**changes: Any) -> dict[str, Any]:
    usual: dict[str, Any] = {
        "zone": "online",
        "name": "z1",
        "hub": {"url": "http://127.0.0.1:1", "hub_id": HUB.hex()},
        "bridge": {"client": "bridge"},
        "audit": {"client": "audit", "reader": "card"},
        "streams": [{"source": "export/z1/a"}],
    }
    return usual | changes


def an_offline(**changes: Any) -> dict[str, Any]:
    streams = [{"source": "export/z1/a", "hub_id": OTHER.hex()}]
    return a_document(**({"zone": "offline", "streams": streams} | changes))


def test_the_example_is_a_configuration() -> None:
    result = load(EXAMPLE)
    assert result.zone is BridgeZone.ONLINE
    assert [route.target for route in result.streams.routes] == [
        "import/plant-1/changes",
        "import/record/app/orders",
        "import/bridge/online/log",
    ]


def test_every_key_of_the_example_that_is_commented_out_is_known() -> None:
    text = EXAMPLE.read_text().replace('zone = "online"', 'zone = "offline"')
    text = text[: text.index("\n[export]\n")] + text[text.index("\n# [import]\n") :].replace(
        "\n# ", "\n"
    )
    text = text.replace("\n#\n", "\n\n")
    text = text.replace('# hub_id = "..."', f'hub_id = "{OTHER.hex()}"', 1).replace(
        'source = "record/app/orders"', f'source = "record/app/orders"\nhub_id = "{OTHER.hex()}"'
    )
    path_free = parse(tomllib.loads(text), Path("/x"))
    assert path_free.importing is not None
    assert path_free.importing.approvals[0].needed == 2
    assert path_free.importing.exclusions[0].event_type == "debug.line"


@pytest.mark.parametrize(
    ("document", "detail"),
    [
        (a_document(zone="both"), "zone = 'both'"),
        (a_document(colour="red"), "colour = 'red': unknown key"),
        (a_document(streams=[]), "expected at least one .*streams"),
        (a_document(streams=[{"source": "import/a"}]), "'import/a' cannot be exported"),
        (a_document(streams=[{"source": "export/a", "target": "record/a"}]), "begin with import/"),
        (a_document(streams=[{"source": "export/a", "hub_id": "11" * 32}]), "hub_id"),
        (a_document(export={"medium": "floppy"}), "export.medium = 'floppy'"),
        (a_document(export={"parity": 56}), "export.parity = 56"),
        (a_document(audit={"client": "bridge", "reader": "card"}), "have the same client"),
        (a_document(**{"import": {}}), "import = {}: unknown key"),
        (an_offline(export={}), "export = {}: unknown key"),
        (an_offline(streams=[{"source": "export/a"}]), "hub_id is missing"),
        (
            an_offline(approvals=[{"prefix": "export/", "needed": 2, "approvers": ["aa" * 32]}]),
            "only 1 approvers are named",
        ),
    ],
)
def test_refuses_what_cannot_be_run(document: dict[str, Any], detail: str) -> None:
    with pytest.raises(BadSettings, match=detail):
        parse(document, Path("/x"))


def a_route(source: str) -> StreamRoute:
    return StreamRoute(HUB, source, default_target(source))


def test_i28_refuses_two_streams_that_go_into_one() -> None:
    for routes in (
        [
            StreamRoute(HUB, "export/record/a", "import/record/a"),
            StreamRoute(HUB, "record/a", "import/record/a"),
        ],
        [StreamRoute(HUB, "export/a", "import/a"), StreamRoute(OTHER, "export/a", "import/a")],
        [StreamRoute(HUB, "export/a", "import/a"), StreamRoute(OTHER, "export/a", "import/b")],
    ):
        with pytest.raises(BadSettings, match="would both go into import/"):
            BridgeStreamMap(routes)


def test_two_hubs_can_be_imported_into_streams_of_their_own() -> None:
    bridge_stream_map = BridgeStreamMap(
        [
            StreamRoute(HUB, "export/a", "import/one/a"),
            StreamRoute(OTHER, "export/a", "import/two/a"),
            StreamRoute(OTHER, "bridge/online/log", "import/two/log"),
        ]
    )
    assert bridge_stream_map.route(OTHER, "export/a").target == "import/two/a"
    assert bridge_stream_map.sources(HUB) == ("export/a", "bridge/online/log")
    with pytest.raises(UnmappedStream, match="add it there if it should cross"):
        bridge_stream_map.route(HUB, "export/b")
