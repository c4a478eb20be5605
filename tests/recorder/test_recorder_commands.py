"""``veen recorder emit|tail|streams|migrate|config check`` at a gated hub."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from contextvars import Context
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import recorder_world
from typer.testing import CliRunner

from cli.failure import fail
from cli.main import app
from recorder.stream_map import CHANGES
from veen.client.outbox import events_in
from veen.errors import VeenError

ONE = ("--type", "order.placed", "--subject", "u:7", "--origin", "shop")
MOVED = "record/app/purchases"
LINE = {"event_type": "order.placed", "subject_id": "u:7", "origin": "shop", "event_time": 7}
OK, USAGE, NETWORK, REFUSED = 0, 1, 2, 4


class Done(NamedTuple):
    code: int
    out: str
    told: str

    @property
    def document(self) -> Any:
        found = json.loads(self.out)
        assert found.pop("ok") is True
        return found


Veen = Callable[..., Done]


def a_toml(document: dict[str, Any]) -> str:
    """Enough of TOML for the settings of these tests; JSON has the same scalars and lists."""
    plain = {key: value for key, value in document.items() if key not in ("hub", "streams")}
    parts = [*_pairs(plain), "[hub]", *_pairs(document["hub"])]
    for one in document["streams"]:
        parts += ["[[streams]]", *_pairs(one)]
    return "\n".join(parts)


def _pairs(table: dict[str, Any]) -> list[str]:
    return [f"{key} = {json.dumps(value)}" for key, value in table.items()]


@pytest.fixture
def veen(capsys: pytest.CaptureFixture[str]) -> Veen:
    """A command of the recorder; what it printed, its exit code and its one line of failure."""

    def run(*words: object, stdin: bytes = b"") -> Done:
        """In a context of its own: ``--json`` is for one command."""
        return Context().run(_invoked, capsys, [*map(str, words)], stdin)

    return run


def _invoked(capsys: pytest.CaptureFixture[str], words: list[str], stdin: bytes) -> Done:
    found = Context().run(CliRunner().invoke, app, ["recorder", *words], input=stdin)
    if not isinstance(found.exception, VeenError | OSError):
        return Done(found.exit_code, found.stdout, found.stderr)
    capsys.readouterr()
    code = fail(found.exception)
    told = capsys.readouterr()
    return Done(code, found.stdout, told.err or told.out)


@pytest.fixture(scope="module")
def config(world: Any) -> Path:
    path = Path(world.folder) / "recorder.toml"
    path.write_text(a_toml(world.document()))
    return path


@pytest.fixture(scope="module")
def caps(world: Any, config: Path) -> dict[str, Path]:
    """The files of the capabilities, which the hub does not know yet."""
    found = {}
    for name in ("producer", "admin"):
        found[name] = config.with_name(f"{name}.cap")
        found[name].write_bytes(world.token(name, world.settings()).encode())
    return found


@pytest.fixture(scope="module")
def authorized(world: Any, caps: dict[str, Path]) -> dict[str, Path]:
    for name in caps:
        with world.client(name, world.settings()) as client:
            client.meet().api.authorize(world.token(name, world.settings()))
    return caps


@pytest.fixture
def at(config: Path, authorized: dict[str, Path]) -> tuple[object, ...]:
    return ("--config", config, "--cap", authorized["producer"])


@pytest.fixture(scope="module", autouse=True)
def registered(world: Any, config: Path) -> None:
    """The admin makes the streams known, before any capability is."""
    settings = ["--config", str(config), "--client", str(world.folder / "admin")]
    words = ["recorder", "streams", "--register", *settings, "--principal", "admin", "--json"]
    found = Context().run(CliRunner().invoke, app, words)
    assert found.exit_code == OK, found.exception
    shown = json.loads(found.stdout)
    assert set(shown["registered"]) >= {"record/app/orders", "record/infrastructure/logs"}
    assert any(world.ids["producer"].hex() in one for one in shown["issue"])


def lines(*some: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(LINE | one).encode() + b"\n" for one in some)


def test_only_a_managing_principal_registers_streams(veen: Veen, world: Any, config: Path) -> None:
    found = veen("streams", "--register", "--config", config)
    assert (found.code, "E.UNAUTHORIZED" in found.told) == (REFUSED, True)
    admin = ("--client", world.folder / "admin", "--principal", "nobody")
    assert veen("streams", "--register", "--config", config, *admin).code == REFUSED


def test_streams_say_who_appends(veen: Veen, world: Any, config: Path) -> None:
    shown = veen("streams", "--config", config, "--json").document
    (orders,) = [one for one in shown["streams"] if one["name"] == "record/app/orders"]
    assert orders["append"] == [world.ids["producer"].hex()]
    assert "registered" not in shown
    assert "whoever has a capability" in veen("streams", "--config", config).out


def test_without_a_capability_nothing_is_recorded(
    veen: Veen, world: Any, config: Path, caps: dict[str, Path]
) -> None:
    found = veen("emit", *ONE, "--payload", "{}", "--config", config)
    assert (found.code, "E.CAP" in found.told) == (REFUSED, True)
    another = veen("emit", *ONE, "--payload", "{}", "--config", config, "--cap", caps["admin"])
    assert (another.code, "not ours" in another.told) == (3, True)
    none = veen("emit", *ONE, "--payload", "{}", "--config", config, "--cap", "/nowhere.cap")
    assert (none.code, "/nowhere.cap" in none.told) == (USAGE, True)
    assert world.events("record/app/orders") == []


def test_one_event_comes_with_its_receipt(veen: Veen, world: Any, at: tuple[object, ...]) -> None:
    """What an earlier command was refused is not sent again by this one."""
    words = ("--payload", '{"n": 1}', "--time", "2025-11-19T03:20:00.5Z")
    found = veen("emit", *ONE, *words, *at, "--json")
    assert found.code == OK
    assert found.document["stream"] == "record/app/orders"
    event = world.events("record/app/orders")[found.document["stream_seq"] - 1]
    assert (event.value(), event.event_time) == ({"n": 1}, 1_763_522_400_500)
    assert found.document["receipt_id"].startswith("rcpt-")
    assert found.document["stream_seq"] == 1


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "give one of --payload"),
        (("--payload", "{}", "--file", "-"), "give one of --payload"),
        (("--file", "-", "--time", "7"), "--time goes with --payload"),
        (("--payload", "{", *ONE), "--payload: "),
        (("--payload", "{}", "--type", "order.placed"), "--subject and --origin"),
    ],
)
def test_misuse_is_told(
    veen: Veen, at: tuple[object, ...], words: tuple[str, ...], told: str
) -> None:
    found = veen("emit", *words, *at)
    assert found.code != OK
    assert told in found.told


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        ({"event_type": "order.lost", "payload": {}}, "no stream is configured"),
        ({"subject_id": "", "payload": {}}, "subject_id"),
        ({"event_time": "yesterday"}, "yesterday"),
        ({"colour": "red", "payload": {}}, "unknown key 'colour'"),
        ({"payload": "x" * 70_000}, "max_payload_bytes"),
    ],
)
def test_a_bad_line_is_named_and_those_before_it_are_recorded(
    veen: Veen, world: Any, at: tuple[object, ...], bad: dict[str, Any], told: str
) -> None:
    before = len(world.events("record/app/orders"))
    source = lines({"payload": 1}) + b"\n" + lines({"payload": 2}, bad, {"payload": 3})
    found = veen("emit", "--file", "-", *at, stdin=source)
    assert (found.code, "line 4: " in found.told) == (REFUSED, True)
    assert told in found.told
    recorded = world.events("record/app/orders")[before:]
    assert [one.value() for one in recorded] == [1, 2]
    rest = veen("emit", "--file", "-", "--from-line", "5", *at, "--json", stdin=source)
    assert rest.document == {"kept": 1, "landed": 1, "pending": 0}
    assert world.events("record/app/orders")[-1].value() == 3


def test_lines_are_kept_while_the_hub_does_not_answer(veen: Veen, tmp_path: Path) -> None:
    recorder_world.an_identity(tmp_path / "producer")
    (tmp_path / "recorder.toml").write_text(a_toml(recorder_world.a_document()))
    alone = ("--config", tmp_path / "recorder.toml")
    found = veen("emit", "--file", "-", *alone, stdin=lines({"payload": 1}, {"payload": 2}))
    assert found.code == NETWORK
    assert "2 events were kept; 2 wait in the outbox" in found.told
    assert events_in(tmp_path / "producer" / "outbox.sqlite") == 2


def test_a_log_is_followed_to_its_end_and_again_from_there(
    veen: Veen, world: Any, at: tuple[object, ...], tmp_path: Path
) -> None:
    log, before = tmp_path / "shop.json", len(world.events("record/app/orders"))
    log.write_bytes(lines({"n": 1}, {"n": 2}))
    tail = ("tail", log, "--once", "--json", *at)
    assert veen(*tail).document == {"events": 2, "landed": 2, "pending": 0}
    log.write_bytes(log.read_bytes() + lines({"n": 3}))
    assert veen(*tail).document["events"] == 1
    assert veen(*tail).document["events"] == 0
    found = [one.value() for one in world.events("record/app/orders")[before:]]
    assert found == [{"n": 1}, {"n": 2}, {"n": 3}]


def test_a_bad_line_of_a_log_stops_the_tail_or_is_recorded(
    veen: Veen, world: Any, at: tuple[object, ...], tmp_path: Path
) -> None:
    log = tmp_path / "mixed.json"
    log.write_bytes(lines({"n": 1}) + b"not JSON\n")
    found = veen("tail", log, "--once", *at)
    assert found.code == REFUSED
    assert "mixed.json" in found.told
    assert f"byte {len(lines({'n': 1}))}" in found.told
    assert veen("tail", log, "--once", "--on-bad-line", "record", *at).code == OK
    assert world.events("record/infrastructure/logs")[-1].event_type == "log.unparsed"


def test_only_an_admin_records_migrations(
    veen: Veen, world: Any, config: Path, authorized: dict[str, Path]
) -> None:
    words = ("migrate", "rename", "--from", "record/app/old", "--to", "record/app/orders")
    words = (*words, "--last-seq", "812", "--config", str(config))
    found = veen(*words, "--cap", authorized["producer"])
    assert (found.code, "is no admin" in found.told) == (REFUSED, True)
    admin = ("--client", world.folder / "admin", "--cap", authorized["admin"])
    shown = veen(*words, *admin, "--json").document
    assert shown["from"] == "record/app/old"
    assert shown["to"][0]["stream"] == "record/app/orders"
    assert shown["stream"] == CHANGES
    (event,) = world.events(CHANGES)
    assert (event.event_type, event.value()["last_seq"]) == ("stream.renamed", 812)
    both = ("--to", "record/app/orders", "--to", "record/infrastructure/logs", "--last-seq", 3)
    parted = veen("migrate", "split", "--from", "record/all", *both, "--config", config, *admin)
    assert parted.code == OK
    assert world.events(CHANGES)[-1].event_type == "stream.split"


def test_a_configuration_is_told_or_its_fault_is_named(
    veen: Veen, world: Any, config: Path, tmp_path: Path
) -> None:
    shown = veen("config", "check", "--config", config, "--json").document
    assert shown["zone"] == "plant-1"
    assert shown["admins"] == [world.ids["admin"].hex()]
    assert shown["profile_id"] == world.settings().profile_id().hex()
    bad = tmp_path / "bad.toml"
    bad.write_text(config.read_text() + "\ncolour = 1\n")
    found = veen("config", "check", "--config", bad)
    assert (found.code, "colour" in found.told) == (REFUSED, True)
    missing = veen("config", "check", "--config", tmp_path / "none.toml")
    assert missing.code != OK
    assert "recorder.example.toml" in missing.told


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("config", "check"), OK),
        (("emit", *ONE), USAGE),
        (("emit", *ONE, "--payload", "{}", "--type", "order.lost"), REFUSED),
        (("migrate", "rename", "--from", "record/app/old"), USAGE),
    ],
)
def test_the_program_ends_with_the_code_for_it(
    config: Path, words: tuple[str, ...], code: int
) -> None:
    command = [sys.executable, "-m", "cli.main", "recorder", *words, "--json"]
    done = subprocess.run(
        [*command, "--config", str(config)], capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stderr
    assert json.loads(done.stdout).get("ok", True) is (code == OK)


def moved(config: Path) -> Path:
    """Settings beside the usual ones, with the same index, that move the stream of orders."""
    found = config.with_name("moved.toml")
    found.write_text(config.read_text().replace('"record/app/orders"', f'"{MOVED}"'))
    return found


def test_h27_no_command_goes_by_a_changed_map_without_its_migration(
    veen: Veen, world: Any, config: Path, authorized: dict[str, Path], tmp_path: Path
) -> None:
    admin = ("--client", world.folder / "admin", "--principal", "admin")
    follow = ("index", "follow", "--once", *admin, "--openers", 0)
    assert veen("emit", *ONE, "--payload", "{}", "--config", config, "--cap",
                authorized["producer"]).code == OK  # fmt: skip
    accepted = veen(*follow, "--config", config, "--json")
    assert accepted.code == OK, accepted.told
    to, log = ("--config", moved(config)), tmp_path / "shop.json"
    log.write_bytes(lines({"payload": 1}))
    commands: tuple[tuple[object, ...], ...] = (
        ("config", "check", *to),
        ("emit", *ONE, "--payload", "{}", *to),
        ("emit", "--file", log, *to),
        ("tail", log, "--once", *to),
        ("checkpoint", "create", *admin, *to),
        ("checkpoint", "run", *admin, *to),
    )
    for words in commands:
        found = veen(*words)
        assert found.code == REFUSED, (words, found)
        assert "expected a migration event in record/infrastructure/changes, got none" in found.told
        assert f"--from record/app/orders --to {MOVED}" in found.told
    told = veen(*follow, *to, "--json").document
    assert "expected a migration event" in told["trouble"]

    # What comes before the migration goes through, and the migration mends it.
    assert veen("streams", "--register", *admin, *to).code == OK
    rename = ("migrate", "rename", "--from", "record/app/orders", "--to", MOVED, "--last-seq", 99)
    done = veen(*rename, "--client", world.folder / "admin", "--cap", authorized["admin"], *to)
    assert done.code == OK, done.told
    assert veen("config", "check", *to).code == REFUSED
    assert veen(*follow, *to, "--json").document["trouble"] is None
    assert veen("config", "check", *to).code == OK
    assert veen("checkpoint", "create", *admin, *to).code == OK
    # The map before it is the one that is refused now.
    back = veen("config", "check", "--config", config)
    assert (back.code, f"from {MOVED} to record/app/orders" in back.told) == (REFUSED, True)


@pytest.mark.parametrize("retention", ["short_term", "30", "30d", ""])
def test_h27_a_retention_shorter_than_long_term_is_refused_by_every_command(
    veen: Veen, config: Path, tmp_path: Path, retention: str
) -> None:
    bad = tmp_path / "recorder.toml"
    bad.write_text(f"{config.read_text()}\nretention = {json.dumps(retention)}\n")
    for words in (
        ("config", "check"),
        ("streams",),
        ("emit", *ONE, "--payload", "{}"),
        ("checkpoint", "create"),
    ):
        found = veen(*words, "--config", bad)
        assert found.code == REFUSED, (words, found)
        assert "retention" in found.told
        assert "long_term" in found.told


@pytest.mark.parametrize(
    "words", [("start",), ("verify",), ("retention",), ("retention", "--prune")]
)
def test_h27_a_hub_command_refuses_to_let_recorder_streams_go(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    bad = tmp_path / "hub.toml"
    bad.write_text('[[retention]]\nstreams = "record/app/*"\nkeep_days = 3650\n')
    where = ("--data-dir", str(tmp_path / "hub"), "--config", str(bad))
    done = subprocess.run(
        [sys.executable, "-m", "cli.main", "hub", *words, *where],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == REFUSED, done.stdout + done.stderr
    assert "is 3650 days, expected 'long_term'" in done.stderr
    assert not (tmp_path / "hub").exists()
