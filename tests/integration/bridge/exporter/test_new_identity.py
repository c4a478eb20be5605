"""A bridge that took a new identity carries what the old one did, under a ledger of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bridge.carrier.medium import BadMedium
from bridge.exporter.gaps import ExportGap
from bridge.exporter.run import Exporter, opened
from support.bridge.naive_history import naive_history
from veen.crypto import SigningKey
from veen.digest import h

CHANGES = "export/z1/changes"
Media = Callable[[], Path]
NEW = SigningKey(h(b"a new identity of the bridge"))


@contextmanager
def renewed(zone: Any, medium: Path, name: str) -> Iterator[Exporter]:
    """An exporter with a new key to sign carriers with, to a medium of a given name."""
    run = zone.run(medium)
    run = replace(run, media=replace(run.media, medium_id=name))
    with opened(zone.settings(), run) as result:
        result._workshop = replace(result._workshop, signer=NEW)
        result._audit._bridge_id = NEW.public
        yield result


def test_a_new_identity_finishes_what_the_old_one_brought_to_a_medium_of_that_name(
    fresh: Any, new_medium: Media
) -> None:
    medium = new_medium()
    first, *_ = fresh.export(medium)
    asked = [ExportGap(CHANGES, first.entry.from_seq, first.entry.to_seq)]
    for number in range(2):
        with renewed(fresh, new_medium(), str(medium)) as exporter:
            (again,) = exporter.again(asked)
        assert again.entry.n == 1
        assert again.is_again == bool(number)
    assert naive_history(fresh.log(), NEW.public).unfinished() is None
    assert [
        success.bridge_id for success in fresh.successes(medium) if success.stream == CHANGES
    ] == [
        fresh.signer().public,
        NEW.public,
    ]
    with (
        renewed(fresh, medium, "another") as exporter,
        pytest.raises(BadMedium, match="of an earlier identity of this bridge; use another"),
    ):
        list(exporter.again(asked))
