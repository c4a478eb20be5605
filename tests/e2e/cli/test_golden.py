"""What every command prints, in both forms; python tests/golden/make_golden.py writes it again."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import typer

from cli.main import app
from support import paths
from support.cli import cli_scenario

pytestmark = pytest.mark.timeout(1_500)  # every command runs once before the first test is over
GOLDEN = paths.GOLDEN / "cli"
FORMS = ("text", "json")
BY_LINE = ("stream", "query-result", "recorder-checkpoint-run", "recorder-serve")
FILES = {form: sorted(path.stem for path in (GOLDEN / form).glob("*.txt")) for form in FORMS}


@pytest.fixture(scope="module")
def worlds(forking: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Both forms at once, each with a hub of its own."""
    forms = dict(cli_scenario.forms(tmp_path_factory.mktemp("golden"), forking.veen))
    with ThreadPoolExecutor(len(forms)) as pool:
        shown = dict(zip(forms, pool.map(lambda world: world.run(), forms.values()), strict=True))
    return {
        form: {item.name: (item.text(forms[form].folder), item.done) for item in shown[form]}
        for form in forms
    }


def commands(group: Any, *words: str) -> Iterator[tuple[str, ...]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, *words, name)
        else:
            yield (*words, name)


STARTING = {"demo", "zone-up", "zone-run", "zone-probe"}
"""They start whole zones, or ask them: tests/e2e/zone shows them."""

EVERY = {"-".join(words) for words in commands(typer.main.get_command(app))}
ALL = sorted(EVERY - STARTING)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("command", ALL)
def test_every_command_has_a_golden_file(command: str, form: str) -> None:
    assert command in FILES[form]


@pytest.mark.parametrize(("form", "name"), [(form, name) for form in FORMS for name in FILES[form]])
def test_prints_what_it_always_did(form: str, name: str, worlds: dict[str, Any]) -> None:
    text, _ = worlds[form][name]
    assert text == (GOLDEN / form / f"{name}.txt").read_text()


@pytest.mark.parametrize("form", FORMS)
def test_everything_that_is_shown_has_a_golden_file(form: str, worlds: dict[str, Any]) -> None:
    assert sorted(worlds[form]) == FILES[form]


@pytest.mark.parametrize("name", FILES["json"])
def test_json_is_one_document_that_says_ok(name: str, worlds: dict[str, Any]) -> None:
    _, done = worlds["json"][name]
    texts = done.out.splitlines() if name in BY_LINE else [done.out]
    assert [json.loads(text)["ok"] for text in texts] == [True] * len(texts)


def test_the_normaliser_leaves_what_is_not_by_chance(
    normalised: Callable[[str, str], str],
) -> None:
    stored = "stream_seq: 12\nttl: 600\nrate: per_sec=5 burst=10\nbody: [-1.5]\ncount: 20\n"
    assert normalised(stored, "/somewhere") == stored


def test_the_normaliser_tells_equal_bytes_from_others(
    normalised: Callable[[str, str], str],
) -> None:
    text = f"{'ab' * 32} {'cd' * 32} {'ab' * 32} {'ef' * 64} /x/hub 127.0.0.1:8080 1794801923"
    assert normalised(text, "/x") == (
        "<32 bytes 1> <32 bytes 2> <32 bytes 1> <64 bytes 1> <folder>/hub 127.0.0.1:<port> <time>"
    )


BARE_TIMES = {
    # "KEY": <time> without "KEY_iso": "<moment>" behind it, or <time> in a text without a moment.
    "json": re.compile(
        r'"(?P<key>\w+)": <time>(?!,\s*"(?P=key)_iso": "<moment>")|(?<!": )(?<!<moment> \()<time>'
    ),
    "text": re.compile(r"(?<!<moment> \()<time>"),
}


@pytest.mark.parametrize(("form", "name"), [(form, name) for form in FORMS for name in FILES[form]])
def test_no_time_is_shown_without_iso_8601(form: str, name: str) -> None:
    assert BARE_TIMES[form].search((GOLDEN / form / f"{name}.txt").read_text()) is None


@pytest.mark.parametrize(
    ("form", "bare", "good"),
    [
        ("text", "hub_ts: <time>", "hub_ts: <moment> (<time>)"),
        ("json", '{"hub_ts": <time>}', '{"hub_ts": <time>, "hub_ts_iso": "<moment>"}'),
        ("json", '"since <time>"', '"since <moment> (<time>)"'),
    ],
)
def test_a_bare_time_is_noticed(form: str, bare: str, good: str) -> None:
    assert BARE_TIMES[form].search(bare) is not None
    assert BARE_TIMES[form].search(good) is None
