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
from typer.testing import CliRunner

from cli.errors import fail
from cli.main import app
from recorder.stream_map import CHANGES
from support.recorder import recorder_world
from veen.client.outbox import events_in
from veen.errors import VeenError

ONE = ("--type", "order.placed", "--subject", "u:7", "--origin", "shop")
MOVED = "record/app/purchases"
LINE = {"event_type": "order.placed", "subject_id": "u:7", "origin": "shop", "event_time": 7}
OK, USAGE, NETWORK, REFUSED = 0, 1, 2, 4


class Done(NamedTuple):
    code: int
    out: str
    detail: str

    @property
    def document(self) -> Any:
        result = json.loads(self.out)
        assert result.pop("ok") is True
        return result


Veen = Callable[..., Done]


def a_toml(document: dict[str, Any]) -> str:
    """Enough of TOML for the settings of these tests; JSON has the same scalars and lists."""
    plain = {key: value for key, value in document.items() if key not in ("hub", "streams")}
    parts = [*_pairs(plain), "[hub]", *_pairs(document["hub"])]
    for item in document["streams"]:
        parts += ["[[streams]]", *_pairs(item)]
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
    run = Context().run(CliRunner().invoke, app, ["recorder", *words], input=stdin)
    if not isinstance(run.exception, VeenError | OSError):
        return Done(run.exit_code, run.stdout, run.stderr)
    capsys.readouterr()
    code = fail(run.exception)
    detail = capsys.readouterr()
    return Done(code, run.stdout, detail.err or detail.out)


@pytest.fixture(scope="module")
def config(emit_world: Any) -> Path:
    path = Path(emit_world.folder) / "recorder.toml"
    path.write_text(a_toml(emit_world.document()))
    return path


@pytest.fixture(scope="module")
def caps(emit_world: Any, config: Path) -> dict[str, Path]:
    """The files of the capabilities, which the hub does not know yet."""
    result = {}
    for name in ("producer", "admin"):
        result[name] = config.with_name(f"{name}.cap")
        result[name].write_bytes(emit_world.token(name, emit_world.settings()).encode())
    return result


@pytest.fixture(scope="module")
def authorized(emit_world: Any, caps: dict[str, Path]) -> dict[str, Path]:
    for name in caps:
        with emit_world.client(name, emit_world.settings()) as client:
            client.meet().api.authorize(emit_world.token(name, emit_world.settings()))
    return caps


@pytest.fixture
def at(config: Path, authorized: dict[str, Path]) -> tuple[object, ...]:
    return ("--config", config, "--cap", authorized["producer"])


@pytest.fixture(scope="module", autouse=True)
def registered(emit_world: Any, config: Path) -> None:
    """The admin makes the streams known, before any capability is."""
    settings = ["--config", str(config), "--client", str(emit_world.folder / "admin")]
    words = ["recorder", "streams", "--register", *settings, "--principal", "admin", "--json"]
    run = Context().run(CliRunner().invoke, app, words)
    assert run.exit_code == OK, run.exception
    shown = json.loads(run.stdout)
    assert set(shown["registered"]) >= {"record/app/orders", "record/infrastructure/logs"}
    assert any(emit_world.ids["producer"].hex() in item for item in shown["issue"])


def lines(*some: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(LINE | item).encode() + b"\n" for item in some)


def test_only_a_managing_principal_registers_streams(
    veen: Veen, emit_world: Any, config: Path
) -> None:
    result = veen("streams", "--register", "--config", config)
    assert (result.code, "E.UNAUTHORIZED" in result.detail) == (REFUSED, True)
    admin = ("--client", emit_world.folder / "admin", "--principal", "nobody")
    assert veen("streams", "--register", "--config", config, *admin).code == REFUSED


def test_streams_say_who_appends(veen: Veen, emit_world: Any, config: Path) -> None:
    shown = veen("streams", "--config", config, "--json").document
    (orders,) = [item for item in shown["streams"] if item["name"] == "record/app/orders"]
    assert orders["append"] == [emit_world.ids["producer"].hex()]
    assert "registered" not in shown
    assert "whoever has a capability" in veen("streams", "--config", config).out


def test_without_a_capability_nothing_is_recorded(
    veen: Veen, emit_world: Any, config: Path, caps: dict[str, Path]
) -> None:
    result = veen("emit", *ONE, "--payload", "{}", "--config", config)
    assert (result.code, "E.CAP" in result.detail) == (REFUSED, True)
    another = veen("emit", *ONE, "--payload", "{}", "--config", config, "--cap", caps["admin"])
    assert (another.code, "not for this identity" in another.detail) == (3, True)
    none = veen("emit", *ONE, "--payload", "{}", "--config", config, "--cap", "/nowhere.cap")
    assert (none.code, "/nowhere.cap" in none.detail) == (USAGE, True)
    assert emit_world.events("record/app/orders") == []


def test_one_event_comes_with_its_receipt(
    veen: Veen, emit_world: Any, at: tuple[object, ...]
) -> None:
    """What an earlier command was refused is not sent again by this one."""
    words = ("--payload", '{"n": 1}', "--time", "2025-11-19T03:20:00.5Z")
    result = veen("emit", *ONE, *words, *at, "--json")
    assert result.code == OK
    assert result.document["stream"] == "record/app/orders"
    event = emit_world.events("record/app/orders")[result.document["stream_seq"] - 1]
    assert (event.value(), event.event_time) == ({"n": 1}, 1_763_522_400_500)
    assert result.document["receipt_id"].startswith("rcpt-")
    assert result.document["stream_seq"] == 1


@pytest.mark.parametrize(
    ("words", "detail"),
    [
        ((), "give one of --payload"),
        (("--payload", "{}", "--file", "-"), "give one of --payload"),
        (("--file", "-", "--time", "7"), "--time needs --payload"),
        (("--payload", "{", *ONE), "--payload: "),
        (("--payload", "{}", "--type", "order.placed"), "--subject and --origin"),
    ],
)
def test_misuse_is_reported(
    veen: Veen, at: tuple[object, ...], words: tuple[str, ...], detail: str
) -> None:
    result = veen("emit", *words, *at)
    assert result.code != OK
    assert detail in result.detail


@pytest.mark.parametrize(
    ("bad", "detail"),
    [
        ({"event_type": "order.lost", "payload": {}}, "no stream is configured"),
        ({"subject_id": "", "payload": {}}, "subject_id"),
        ({"event_time": "yesterday"}, "yesterday"),
        ({"colour": "red", "payload": {}}, "unknown key 'colour'"),
        ({"payload": "x" * 70_000}, "max_payload_bytes"),
    ],
)
def test_a_bad_line_is_named_and_those_before_it_are_recorded(
    veen: Veen, emit_world: Any, at: tuple[object, ...], bad: dict[str, Any], detail: str
) -> None:
    before = len(emit_world.events("record/app/orders"))
    source = lines({"payload": 1}) + b"\n" + lines({"payload": 2}, bad, {"payload": 3})
    result = veen("emit", "--file", "-", *at, stdin=source)
    assert (result.code, "line 4: " in result.detail) == (REFUSED, True)
    assert detail in result.detail
    recorded = emit_world.events("record/app/orders")[before:]
    assert [item.value() for item in recorded] == [1, 2]
    rest = veen("emit", "--file", "-", "--from-line", "5", *at, "--json", stdin=source)
    assert rest.document == {"stored": 1, "acknowledged": 1, "pending": 0}
    assert emit_world.events("record/app/orders")[-1].value() == 3


def test_lines_are_kept_while_the_hub_does_not_answer(veen: Veen, tmp_path: Path) -> None:
    recorder_world.an_identity(tmp_path / "producer")
    (tmp_path / "recorder.toml").write_text(a_toml(recorder_world.a_document()))
    alone = ("--config", tmp_path / "recorder.toml")
    result = veen("emit", "--file", "-", *alone, stdin=lines({"payload": 1}, {"payload": 2}))
    assert result.code == NETWORK
    assert "2 events were stored; 2 wait in the outbox" in result.detail
    assert events_in(tmp_path / "producer" / "outbox.sqlite") == 2


def test_a_log_is_followed_to_its_end_and_again_from_there(
    veen: Veen, emit_world: Any, at: tuple[object, ...], tmp_path: Path
) -> None:
    log, before = tmp_path / "shop.json", len(emit_world.events("record/app/orders"))
    log.write_bytes(lines({"n": 1}, {"n": 2}))
    tail = ("tail", log, "--once", "--json", *at)
    assert veen(*tail).document == {"events": 2, "acknowledged": 2, "pending": 0}
    log.write_bytes(log.read_bytes() + lines({"n": 3}))
    assert veen(*tail).document["events"] == 1
    assert veen(*tail).document["events"] == 0
    result = [event.value() for event in emit_world.events("record/app/orders")[before:]]
    assert result == [{"n": 1}, {"n": 2}, {"n": 3}]


def test_a_bad_line_of_a_log_stops_the_tail_or_is_recorded(
    veen: Veen, emit_world: Any, at: tuple[object, ...], tmp_path: Path
) -> None:
    log = tmp_path / "mixed.json"
    log.write_bytes(lines({"n": 1}) + b"not JSON\n")
    result = veen("tail", log, "--once", *at)
    assert result.code == REFUSED
    assert "mixed.json" in result.detail
    assert f"byte {len(lines({'n': 1}))}" in result.detail
    assert veen("tail", log, "--once", "--on-bad-line", "record", *at).code == OK
    assert emit_world.events("record/infrastructure/logs")[-1].event_type == "log.unparsed"


def test_only_an_admin_records_migrations(
    veen: Veen, emit_world: Any, config: Path, authorized: dict[str, Path]
) -> None:
    words: tuple[str, ...] = (
        "migrate",
        "rename",
        "--from",
        "record/app/old",
        "--to",
        "record/app/orders",
    )
    words = (*words, "--last-seq", "812", "--config", str(config))
    result = veen(*words, "--cap", authorized["producer"])
    assert (result.code, "is no admin" in result.detail) == (REFUSED, True)
    admin = ("--client", emit_world.folder / "admin", "--cap", authorized["admin"])
    shown = veen(*words, *admin, "--json").document
    assert shown["from"] == "record/app/old"
    assert shown["to"][0]["stream"] == "record/app/orders"
    assert shown["stream"] == CHANGES
    (event,) = emit_world.events(CHANGES)
    assert (event.event_type, event.value()["last_seq"]) == ("stream.renamed", 812)
    both = ("--to", "record/app/orders", "--to", "record/infrastructure/logs", "--last-seq", 3)
    parted = veen("migrate", "split", "--from", "record/all", *both, "--config", config, *admin)
    assert parted.code == OK
    assert emit_world.events(CHANGES)[-1].event_type == "stream.split"


def test_a_configuration_is_reported_or_its_fault_is_named(
    veen: Veen, emit_world: Any, config: Path, tmp_path: Path
) -> None:
    shown = veen("config", "check", "--config", config, "--json").document
    assert shown["zone"] == "plant-1"
    assert shown["admins"] == [emit_world.ids["admin"].hex()]
    assert shown["profile_id"] == emit_world.settings().profile_id().hex()
    bad = tmp_path / "bad.toml"
    bad.write_text(config.read_text() + "\ncolour = 1\n")
    result = veen("config", "check", "--config", bad)
    assert (result.code, "colour" in result.detail) == (REFUSED, True)
    missing = veen("config", "check", "--config", tmp_path / "none.toml")
    assert missing.code != OK
    assert "recorder.example.toml" in missing.detail


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
    with_name = config.with_name("moved.toml")
    with_name.write_text(config.read_text().replace('"record/app/orders"', f'"{MOVED}"'))
    return with_name


def test_h27_no_command_goes_by_a_changed_map_without_its_migration(
    veen: Veen, emit_world: Any, config: Path, authorized: dict[str, Path], tmp_path: Path
) -> None:
    admin = ("--client", emit_world.folder / "admin", "--principal", "admin")
    follow = ("index", "follow", "--once", *admin, "--openers", 0)
    assert veen("emit", *ONE, "--payload", "{}", "--config", config, "--cap",
                authorized["producer"]).code == OK  # fmt: skip
    accepted = veen(*follow, "--config", config, "--json")
    assert accepted.code == OK, accepted.detail
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
        result = veen(*words)
        assert result.code == REFUSED, (words, result)
        assert (
            "expected a migration event in record/infrastructure/changes, got none" in result.detail
        )
        assert f"--from record/app/orders --to {MOVED}" in result.detail
    document = veen(*follow, *to, "--json").document
    assert "expected a migration event" in document["trouble"]

    # What comes before the migration goes through, and the migration mends it.
    assert veen("streams", "--register", *admin, *to).code == OK
    rename = ("migrate", "rename", "--from", "record/app/orders", "--to", MOVED, "--last-seq", 99)
    done = veen(*rename, "--client", emit_world.folder / "admin", "--cap", authorized["admin"], *to)
    assert done.code == OK, done.detail
    assert veen("config", "check", *to).code == REFUSED
    assert veen(*follow, *to, "--json").document["trouble"] is None
    assert veen("config", "check", *to).code == OK
    assert veen("checkpoint", "create", *admin, *to).code == OK
    # The map before it is the one that is refused now.
    back = veen("config", "check", "--config", config)
    assert (back.code, f"from {MOVED} to record/app/orders" in back.detail) == (REFUSED, True)


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
        result = veen(*words, "--config", bad)
        assert result.code == REFUSED, (words, result)
        assert "retention" in result.detail
        assert "long_term" in result.detail


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
