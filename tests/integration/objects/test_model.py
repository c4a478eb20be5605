"""Random operations with odd keys: a store and a dictionary never disagree."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from support.long_form import LONG
from support.objects import object_servers
from veen.objects.port import (
    MAX_KEY_BYTES,
    MAX_SEGMENT_BYTES,
    FileSettings,
    ObjectConflict,
    ObjectMissing,
    ObjectStore,
    Retention,
    StoreSettings,
    check_key,
)
from veen.objects.store import open_retention, open_store

Operation = tuple[str, str, bytes]

# A small alphabet, so that keys meet as prefixes and neighbours, and now and then anything.
LETTERS = st.sampled_from([*"ab./-0 +~", "é", "\uffee", "\U0001d11e", "\U0010fffd"])
SEGMENTS = st.one_of(
    st.text(LETTERS, min_size=1, max_size=3),
    st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=4),
    st.builds(lambda letter: letter * (MAX_SEGMENT_BYTES // len(letter.encode())), LETTERS),
)


def is_allowed(key: str) -> bool:
    """The rule of keys, written a second way."""
    parts = key.split("/")
    return (
        not set(key) & {"%", "\\", "\ufffe", "\uffff"}
        and not [letter for letter in key if ord(letter) < 32 or ord(letter) == 127]
        and not {"", ".", ".."} & set(parts)
        and max(len(part.encode()) for part in parts) <= MAX_SEGMENT_BYTES
        and len(key.encode()) <= MAX_KEY_BYTES
    )


KEYS = st.lists(SEGMENTS, min_size=1, max_size=4).map("/".join).filter(is_allowed)
BODIES = st.sampled_from([b"", b"a", b"b", b"long" * 50])
KINDS = st.sampled_from(["put", "put", "put", "get", "range", "list", "after", "delete"])


@st.composite
def operations(draw: Any) -> list[Operation]:
    keys = st.sampled_from(draw(st.lists(KEYS, min_size=1, max_size=6, unique=True)))
    result: list[Operation] = draw(
        st.lists(st.tuples(KINDS, keys, BODIES), min_size=1, max_size=12)
    )
    return result


def check(objects: ObjectStore, retention: Retention, steps: list[Operation]) -> None:
    model: dict[str, bytes] = {}
    for kind, key, body in steps:
        if kind == "put" and model.get(key, body) == body:
            objects.put(key, body)
            model[key] = body
        elif kind == "put":
            with pytest.raises(ObjectConflict):
                objects.put(key, body)
        elif kind == "delete":
            retention.delete(key)
            model.pop(key, None)
        elif kind == "list":
            prefix = key[: len(body)]
            expected = {name for name in model if name.encode().startswith(prefix.encode())}
            assert list(objects.keys(prefix)) == sorted(expected, key=str.encode)
        elif kind == "after":
            expected = {name for name in model if name.encode() > key.encode()}
            assert list(objects.keys(start_after=key)) == sorted(expected, key=str.encode)
        elif key not in model:
            with pytest.raises(ObjectMissing):
                objects.get(key) if kind == "get" else objects.size(key)
        else:
            assert objects.get(key) == model[key]
            assert objects.get_range(key, 1, len(body)) == model[key][1 : 1 + len(body)]
            assert objects.size(key) == len(model[key])
    assert list(objects.keys()) == sorted(model, key=str.encode)
    assert {key: objects.get(key) for key in model} == model


@pytest.fixture(params=["files", "s3"])
def run_model(request: pytest.FixtureRequest, quick_folder: Path) -> Callable[[], None]:
    """Plays many examples, each against a store of its own."""
    number = itertools.count()

    def fresh() -> StoreSettings:
        if request.param == "files":
            return FileSettings(quick_folder / str(next(number)))
        endpoint = request.getfixturevalue("moto").endpoint
        result: StoreSettings = object_servers.s3_settings(endpoint, f"model-{next(number)}/")
        return result

    examples = {"files": 150, "s3": 7}[request.param] * (25 if LONG else 1)

    @hypothesis_settings(
        derandomize=True,
        deadline=None,
        database=None,
        max_examples=examples,
        suppress_health_check=list(HealthCheck),
    )
    @given(operations())
    def run(steps: list[Operation]) -> None:
        place = fresh()
        check(
            open_store(place, object_servers.KEYS).objects,
            open_retention(place, object_servers.KEYS),
            steps,
        )

    return run


def test_a_store_and_a_dictionary_agree(run_model: Callable[[], None]) -> None:
    run_model()


@hypothesis_settings(derandomize=True, deadline=None, database=None, max_examples=300)
@given(st.lists(SEGMENTS, min_size=0, max_size=8).map("/".join))
def test_keys_are_refused_by_their_rule_alone(key: str) -> None:
    try:
        check_key(key)
    except ValueError:
        assert not is_allowed(key)
    else:
        assert is_allowed(key)
