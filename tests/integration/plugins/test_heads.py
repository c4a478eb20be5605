"""Heads as a real hub tells them: to the recorder's own reader, and to nobody else."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from veen_page_log import heads
from veen_page_services import opened

from cli.demo import workload
from support import poison
from support.plugins.page_zone import PageZone
from veen.captoken import read_token
from veen.crypto import SigningKey
from veen.keystore.sealed import Secrets
from zone.config import VARIABLE
from zone.directory import ZoneHome
from zone.services import authorize, hub

POISONED = "record/security/access"
STREAM = "record/app/http"


@pytest.fixture(scope="module")
def home(make_page_zone_in: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZoneHome]:
    """A zone of which the hub runs and nothing else, with three events."""
    zone_home = ZoneHome(make_page_zone_in(tmp_path_factory.mktemp("heads")).folder)
    service = hub(zone_home, zone_home.zone())
    with (zone_home.root / "hub.log").open("wb") as log:
        process = subprocess.Popen(service.command, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + 60
        while not service.is_ready():
            assert time.monotonic() < deadline, (zone_home.root / "hub.log").read_text()
            time.sleep(0.1)
        authorize(zone_home)
        record(zone_home)
        yield zone_home
    finally:
        process.terminate()
        process.wait()


def record(home: ZoneHome) -> None:
    events = workload.events(7, 1_767_225_600_000, {"gateway": 3})
    ((name, path), *_) = workload.write(home.root / "workload", events)
    words = ["recorder", "emit", "--config", str(home.file), "--file", str(path)]
    who = ["--client", str(home.root / "identities" / name), "--principal", name]
    veen(*words, *who, "--cap", str(home.capability(name)))


def veen(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "cli.main", *words], check=True)


def place(file: Path) -> Any:
    return opened({VARIABLE: str(file)})


def detail(file: Path) -> Any:
    return heads(place(file), lambda: int(time.time()), os.urandom)


def test_the_hub_tells_the_heads_of_all_streams_of_the_recorder(home: ZoneHome) -> None:
    before = sorted(home.root.glob("identities/**/*"))
    result = detail(home.file)
    assert result[STREAM] == 3
    assert set(result) >= {"record/security/access", "record/infrastructure/hosts"}
    assert sorted(home.root.glob("identities/**/*")) == before


@pytest.mark.parametrize(
    ("line", "other"),
    [
        ('principal = "service"', 'principal = "somebody"'),
        ('principal = "service"', 'principal = "service"\nurl = "http://127.0.0.1:9"'),
        ('principal = "service"', 'principal = "service"\npassphrase_file = "phrase"'),
        ('client = "identities/service"', 'client = "identities/none"'),
    ],
)
def test_a_hub_that_cannot_be_asked_tells_nothing(home: ZoneHome, line: str, other: str) -> None:
    text = home.file.read_text()
    assert line in text
    file = home.root / "other.toml"
    file.write_text(text.replace(line, other, 1))
    assert detail(file) is None


def plant(home: ZoneHome) -> None:
    """One message of each kind, by the stream's own producer, past the hub's admission."""
    recipient = home.identity("reader").read_card().recipient(int(time.time()))
    secrets = Secrets.decode(home.identity("access").sealed().open(None))
    auth_ref = read_token(home.capability("access")).auth_ref()
    writer = poison.Poisoner(SigningKey(secrets.client.seed), recipient, auth_ref)
    writer.plant(home.zone().hub_data, POISONED)


def test_h07_messages_that_cannot_be_read_are_counted_on_the_page(home: ZoneHome) -> None:
    plant(home)
    veen("recorder", "index", "follow", "--once", "--openers", "0", "--config", str(home.file))
    zone, bad = PageZone(home.root), len(poison.KINDS)
    known = zone.overview(heads=lambda _place: detail(home.file)).streams.known
    rows = {row.name: (row.head, row.behind, row.unread) for row in known.rows}
    assert rows[POISONED] == (bad, 0, bad)
    assert rows[STREAM] == (3, 0, 0), "no other stream is held up"
    assert (known.unread, known.trouble) == (bad, None)
    html = zone.html(heads=lambda _place: detail(home.file))
    assert f"{bad} messages cannot be read as events" in html
    assert f'<td data-name="Cannot be read" class="n">{bad}</td>' in html
