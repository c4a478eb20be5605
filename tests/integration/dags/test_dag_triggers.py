"""The triggers as the triggerer runs them, against what answers and what does not."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from support.dags.dag_steps import loaded
from support.dags.dag_zones import veen
from support.local_http import Answering, served
from veen.system.config import BadSettings

REFUSED, DOWN = -401, -500


@pytest.fixture(scope="module")
def watch(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    return loaded("veen_watch", tmp_path_factory.mktemp("airflow"))


@pytest.fixture(scope="module")
def z2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("zones")
    veen("zone", "init", "--directory", str(folder / "z1"), "--name", "z1", "--role", "online")
    where = ["--directory", str(folder / "z2"), "--trust", str(folder / "z1" / "handover")]
    veen("zone", "init", *where, "--name", "z2", "--role", "offline")
    return folder / "z2" / "veen.toml"


@pytest.fixture
def file(z2: Path) -> Iterator[Path]:
    before = z2.read_text()
    z2.write_text(before.replace("[dags]\n", "[dags]\npoll_sec = 1\ncheckpoint_events = 10\n"))
    yield z2
    z2.write_text(before)


@contextmanager
def a_hub(file: Path, *counts: int) -> Iterator[list[str | None]]:
    """A hub of the zone that tells these counts, the last one for ever; who asked is noted."""
    left, asked = list(counts), list[str | None]()

    class Handler(Answering):
        def get(self) -> None:
            who = self.headers["Signature-Input"]
            asked.append(who)
            if left[0] == REFUSED and who:
                left.pop(0)
            count = left[0] if len(left) == 1 or left[0] == REFUSED else left.pop(0)
            content = f"# HELP\nveen_submit_ok_total {count}.0\n".encode()
            self.say(-count if count < 0 else 200, content)

    with served(Handler) as url:
        hub = f'[recorder.hub]\nurl = "{url}"\n'
        file.write_text(file.read_text().replace("[recorder.hub]\n", hub))
        yield asked


def detail(trigger: Any) -> Any:
    """The first event of a trigger."""
    return asyncio.run(asyncio.wait_for(anext(trigger.run()), 30)).payload


def test_a_hub_that_has_taken_enough_is_reported(watch: ModuleType, file: Path) -> None:
    with a_hub(file, 40, 49, 52) as asked:
        assert detail(watch.VolumeTrigger(str(file))) == {"events": 12}
    assert asked == [None] * 3


def test_a_hub_that_was_away_and_counts_from_nothing_is_reported(
    watch: ModuleType, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with a_hub(file, 40, DOWN, 3, 13):
        assert detail(watch.VolumeTrigger(str(file))) == {"events": 10}
    (warning,) = [record for record in caplog.records if record.levelname == "WARNING"]
    assert "HTTP Error 500" in warning.getMessage()
    assert "that it runs (veen hub health)" in warning.getMessage()


def test_a_hub_that_asks_who_is_there_is_answered_by_who_acts(
    watch: ModuleType, file: Path
) -> None:
    with a_hub(file, REFUSED, 7) as asked:
        assert watch.taken(watch.VolumeTrigger(str(file)).zone()) == 7
    assert asked[0] is None
    assert 'keyid="admin"' in str(asked[1])


def test_a_certificate_that_is_named_is_the_one_that_counts(
    watch: ModuleType, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text = file.read_text().replace("[recorder.hub]\n", '[recorder.hub]\nca = "none.pem"\n')
    file.write_text(
        text.replace("[recorder.hub]\n", '[recorder.hub]\nurl = "https://127.0.0.1:1"\n')
    )
    assert watch.taken(watch.VolumeTrigger(str(file)).zone()) is None
    assert "No such file" in caplog.text


def test_a_carrier_that_vanishes_between_two_looks_at_it_hides_no_other(
    watch: ModuleType, file: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    whole = tmp_path / "whole" / "carrier.sig"
    whole.parent.mkdir()
    whole.touch()
    listed = [tmp_path / "gone" / "carrier.sig", whole]
    (result,) = watch._lying(iter(listed))
    assert result.startswith(f"{whole.parent}/0/")
    assert "a carrier is no longer present" in caplog.text


def test_a_medium_that_cannot_be_read_ends_no_trigger(
    watch: ModuleType, caplog: pytest.LogCaptureFixture
) -> None:
    def torn_out(path: str) -> Path:
        raise OSError(5, "Input/output error", path)

    assert list(watch._lying(map(torn_out, ["/media/usb"]))) == []
    assert "Check that it is mounted and works" in caplog.text


def test_a_file_that_is_being_changed_counts_as_it_was(watch: ModuleType, file: Path) -> None:
    trigger = watch.MediumTrigger(str(file))
    before = trigger.zone()
    file.write_text("zone = ")
    assert trigger.zone() is before
    with pytest.raises(BadSettings):
        watch.MediumTrigger(str(file)).zone()
