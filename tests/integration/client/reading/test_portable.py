"""The portable set goes out verified and comes in verified, whole or not at all."""

from __future__ import annotations

import io
import os
import shutil
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import cbor2
import pytest

from support.client import lying_hub, reading_support
from veen.client import portable
from veen.client.portable_set import manifest_of
from veen.client.reader import read
from veen.client.session import Session, load_state
from veen.crypto import SigningKey
from veen.digest import h
from veen.errors import Untrusted, VeenError
from veen.invariants import ClientCursor
from veen.keystore.directory import ClientDir, IdentityExists
from veen.receipt import Receipt

NAMES = ("record/a", "record/b")
ATTACHMENT = b"a sealed attachment"


def items(path: Path) -> Iterator[Any]:
    """A CBOR sequence, read by another's decoder."""
    file = io.BytesIO(path.read_bytes())
    while file.tell() < len(file.getvalue()):
        yield cbor2.load(file)


def test_holds_what_the_log_holds(owner: Session, dishonest_hub: Any, tmp_path: Path) -> None:
    done = portable.export(owner, NAMES, tmp_path / "set")
    assert (done.labels, done.pairs, done.checkpoints) == (2, 22, 4)
    assert (done.tokens, done.attachments) == (1, 1)
    pairs = [pair for name in NAMES for pair in dishonest_hub.log(name).pairs]
    out = tmp_path / "set"
    assert list(items(out / "payloads.cborseq")) == [cbor2.loads(msg) for msg, _ in pairs]
    assert list(items(out / "receipts.cborseq")) == [cbor2.loads(item) for _, item in pairs]
    assert len(list(items(out / "checkpoints.cborseq"))) == 4
    assert (out / "attachments" / h(ATTACHMENT).hex()).read_bytes() == ATTACHMENT
    assert {path.stat().st_mode & 0o77 for path in out.rglob("*")} == {0}
    assert not list(tmp_path.glob(".*"))


def test_both_ways_tell_how_far_they_have_come(owner: Session, tmp_path: Path) -> None:
    detail: list[tuple[int, int | None]] = []
    portable.export(owner, NAMES, tmp_path / "set", progress=lambda *step: detail.append(step))
    assert detail.pop() == (22, None)
    portable.import_(tmp_path / "set", tmp_path / "new", lambda *step: detail.append(step))
    assert detail[-1] == (22, 22)


def test_the_same_log_gives_the_same_bytes(owner: Session, out: Path, tmp_path: Path) -> None:
    portable.export(owner, NAMES, tmp_path / "again")
    assert manifest_of(out) == manifest_of(tmp_path / "again")


def test_an_export_replaces_nothing(owner: Session, out: Path) -> None:
    before = manifest_of(out)
    with pytest.raises(VeenError, match="never overwritten"):
        portable.export(owner, NAMES, out)
    assert manifest_of(out) == before


def test_a_lie_leaves_no_set_behind(owner: Session, dishonest_hub: Any, tmp_path: Path) -> None:
    log = dishonest_hub.log(NAMES[1])
    msg, receipt = log.pairs[7]
    log.pairs[7] = (
        msg,
        replace(Receipt.decode(receipt), mmr_root=h(b"x")).signed(dishonest_hub.key).encode(),
    )
    with pytest.raises(Untrusted, match="stream_seq 8"):
        portable.export(owner, NAMES, tmp_path / "set")
    assert not (tmp_path / "set").exists()
    assert not list(tmp_path.glob(".*"))


def test_comes_in_as_a_client_directory(
    out: Path,
    owner: Session,
    dishonest_hub: Any,
    tmp_path: Path,
    make_session: Callable[..., Session],
) -> None:
    done = portable.import_(out, tmp_path / "new")
    assert (done.is_new, done.labels, done.pairs, done.checkpoints) == (True, 2, 22, 4)
    new = ClientDir(tmp_path / "new")
    assert new.open(None).client_id == owner.identity.client_id
    assert new.keystore.read_bytes() == (owner.root / "keystore.enc").read_bytes()
    state = load_state(new.state)
    assert state.hubs[dishonest_hub.url].identity == owner.hub
    for name in NAMES:
        view = state.views[dishonest_hub.log(name).label]
        assert (view.peaks, view.head) == (
            dishonest_hub.log(name).peaks,
            dishonest_hub.log(name).receipt(11),
        )
        assert view.cursors == {owner.identity.client_id: ClientCursor(6, 10)}
    assert len(list(items(new.receipts))) == 12
    assert (new.attachments / h(ATTACHMENT).hex()).read_bytes() == ATTACHMENT
    assert new.root.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o77 for path in new.root.rglob("*")} == {0}
    again = make_session(dishonest_hub.url, "new", identity=new.open(None))
    assert len(list(read(again, dishonest_hub.labels(NAMES[0]), NAMES[0], from_seq=3))) == 9


def test_comes_back_into_the_directory_it_came_from(
    out: Path, owner: Session, portable_home: ClientDir, dishonest_hub: Any
) -> None:
    before = load_state(portable_home.state)
    portable_home.state.unlink()
    done = portable.import_(out, portable_home.root)
    assert (done.is_new, done.pairs) == (False, 22)
    assert load_state(portable_home.state).views == before.views
    assert len(list(items(portable_home.receipts))) == 12
    portable.import_(out, portable_home.root)
    assert len(list(items(portable_home.receipts))) == 12


def test_a_newer_view_stays_when_an_older_set_comes_in(
    out: Path, owner: Session, portable_home: ClientDir, dishonest_hub: Any
) -> None:
    reading_support.fill(
        dishonest_hub, dishonest_hub.log(NAMES[0]), 3, reading_support.Writer(b"third")
    )
    list(read(owner, dishonest_hub.labels(NAMES[0]), NAMES[0]))
    before = load_state(portable_home.state)
    portable.import_(out, portable_home.root)
    assert load_state(portable_home.state) == before


def test_a_set_of_another_history_is_refused(
    out: Path, owner: Session, portable_home: ClientDir, dishonest_hub: Any
) -> None:
    portable_home.state.unlink()
    reading_support.fill(
        dishonest_hub,
        lying_hub.fork(dishonest_hub, NAMES[0], 3),
        5,
        reading_support.Writer(b"mallory"),
    )
    other = reading_support.a_session(
        dishonest_hub.url, portable_home.root, identity=owner.identity
    )
    list(read(other, dishonest_hub.labels(NAMES[0]), NAMES[0]))
    other.api.transport.close()
    before = portable_home.state.read_bytes()
    with pytest.raises(Untrusted, match="another history"):
        portable.import_(out, portable_home.root)
    assert portable_home.state.read_bytes() == before
    assert not portable_home.receipts.exists()


def test_another_identity_is_never_replaced(out: Path, tmp_path: Path) -> None:
    other = ClientDir(tmp_path / "other")
    other.create(now=1, random=reading_support.Randomness(b"other"), passphrase=None)
    before = other.keystore.read_bytes()
    with pytest.raises(IdentityExists, match="another identity"):
        portable.import_(out, other.root)
    assert other.keystore.read_bytes() == before
    assert not other.state.exists()


def test_nothing_else_is_written_over(out: Path, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter").write_text("dear")
    with pytest.raises(IdentityExists):
        portable.import_(out, tmp_path / "full")
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["letter"]


def test_a_pruned_beginning_is_carried_by_its_peaks(
    owner: Session, dishonest_hub: Any, tmp_path: Path
) -> None:
    dishonest_hub.log(NAMES[0]).pruned = 4
    done = portable.export(owner, NAMES, tmp_path / "set")
    assert done.pairs == 18
    assert portable.import_(tmp_path / "set", tmp_path / "new").pairs == 18
    view = load_state(tmp_path / "new" / "state.json").views[dishonest_hub.log(NAMES[0]).label]
    assert view.peaks == dishonest_hub.log(NAMES[0]).peaks


class Crash(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("merges", [False, True])
def test_a_crash_leaves_nothing_or_all(
    merges: bool,
    out: Path,
    portable_home: ClientDir,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (portable_home.root / "state.json").unlink()
    steps = _crashing(out, portable_home, tmp_path, monkeypatch, merges, 10**6)
    assert steps > 1
    for step in range(1, steps + 1):
        assert _crashing(out, portable_home, tmp_path, monkeypatch, merges, step) == step


def _crashing(
    out: Path, home: ClientDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    merges: bool, last: int,
) -> int:  # fmt: skip
    """Import until an operation on a file that does not happen; how many were tried."""
    into, count = tmp_path / "into", 0
    shutil.rmtree(into, ignore_errors=True)
    if merges:
        shutil.copytree(home.root, into)
    with monkeypatch.context() as patch:
        for name in ("pwrite", "rename"):
            real = getattr(os, name)

            def counted(*args: Any, real: Any = real) -> Any:
                nonlocal count
                count += 1
                if count >= last:
                    raise Crash
                return real(*args)

            patch.setattr(os, name, counted)
        try:
            portable.import_(out, into)
        except Crash:
            done = False
        else:
            done = True
    assert (into / "state.json").exists() == done
    assert merges or into.exists() == done
    portable.import_(out, into)
    assert len(load_state(into / "state.json").views) == 2
    return count


def test_memory_does_not_grow_with_the_set(
    owner: Session, dishonest_hub: Any, tmp_path: Path
) -> None:
    log, writer = dishonest_hub.log("record/long"), reading_support.Writer(b"w")

    def peak(name: str) -> int:
        tracemalloc.start()
        try:
            portable.export(owner, ["record/long"], tmp_path / name)
            portable.import_(tmp_path / name, tmp_path / f"{name} in")
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    reading_support.fill(dishonest_hub, log, 2_000, writer)
    peak("warm")
    small = peak("small")
    reading_support.fill(dishonest_hub, log, 6_000, writer)
    assert peak("large") < 1.5 * small + 500_000


def test_h02_a_set_is_verified_by_the_newest_identity_that_is_known(
    dishonest_hub: Any, out: Path, tmp_path: Path
) -> None:
    later = dishonest_hub.identity.rotated(
        dishonest_hub.key, SigningKey(h(b"next")).public, dishonest_hub.hub_ts + 10, 0
    )
    retired = dishonest_hub.identity.rotated(
        dishonest_hub.key, SigningKey(h(b"next")).public, dishonest_hub.hub_ts - 10, 0
    )
    portable.import_(out, tmp_path / "later", known=later)
    assert load_state(tmp_path / "later" / "state.json").named(later.hub_id)[0].identity == later
    with pytest.raises(Untrusted, match="valid at its hub_ts"):
        portable.import_(out, tmp_path / "retired", known=retired)
    assert not (tmp_path / "retired").exists()
