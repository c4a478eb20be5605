"""Third part: a query in Z1 with full evidence, run again in Z2 over what crossed alone."""

from __future__ import annotations

import shutil

from cli.demo.stage import Stage
from cli.demo.workload import SUSPECT
from cli.zone_people import ACCESS, HTTP
from recorder import settings as recorder_settings


def query(stage: Stage) -> None:
    stage.tell(f"an auditor of Z1 asks what {SUSPECT} did, with full evidence")
    online, offline = stage.online, stage.offline
    listen = recorder_settings.load(online.home.file).query.listen
    at = ("--api", f"http://{listen}", "--token-file", online.home.token)
    where = ("--stream", HTTP, "--stream", ACCESS, "--subject", SUSPECT)
    words = ("query", "submit", *at, *where, "--evidence", "full", "--reason", "incident 12")
    digest = stage.words.veen(*words).document
    result, rows = str(digest["result_id"]), int(digest["row_count"])
    package = stage.folder / "query-proof.json"
    stage.words.veen("query", "proof", result, *at, "--out", package)
    _judge_package(stage, package.name, rows)
    stage.tell("the evidence is carried to Z2, which runs the query again over what it imported")
    here = offline.home.root / package.name
    shutil.copyfile(package, here)
    reader = ("--client", offline.home.identity("reader").root, "--principal", "reader")
    index = offline.home.root / "imported-index"
    streams = [word for one in (HTTP, ACCESS) for word in ("--stream", f"import/{one}")]
    taken = ("--trust", offline.home.trust, "--index", index)
    stage.words.veen("recorder", "index", "imports", *offline.config, *reader, *streams, *taken)
    who = ("--client", offline.home.identity("auditor").root, "--principal", "auditor")
    recorded = (*who, "--cap", offline.home.capability("auditor"), "--record")
    of = ("--hub-id", online.zone.hub_id.hex(), "--index", index)
    again = ("query", "replay", here, *offline.config, *of, *recorded)
    found = stage.words.veen(*again, accept=(0, 3)).document
    stage.claims.judge(
        "the same query over Z2's imports gives the same digest",
        found.get("verdict") == "matches",
        told=f"{rows} rows; the verdict is event {found.get('record_event', {}).get('seq')} of "
        "record/query/replays in Z2",
        link=str(here),
    )


def _judge_package(stage: Stage, name: str, rows: int) -> None:
    online = stage.online
    believed = ("--hub-id", online.zone.hub_id.hex())
    ledger = ("--ledger", online.home.root / "anchors.ledger")
    words = ("query", "verify", stage.folder / name, *believed, *ledger)
    found = stage.words.veen(*words, accept=(0, 3)).document
    states = [one["state"] for one in found["claims"]]
    stage.claims.judge(
        "the query's evidence holds offline, row by row",
        rows > 0 and "failed" not in states and "held" in states,
        told=f"{rows} rows; {states.count('held')} of {len(states)} claims held, none failed",
        link=str(stage.folder / name),
    )
