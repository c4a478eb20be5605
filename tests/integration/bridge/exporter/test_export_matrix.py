"""The rows X1 to X10 of the failure matrix: whatever is cut, the next run makes it good."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bridge.carrier.medium import BadMedium
from bridge.exporter.deliver import ExportAudit
from bridge.exporter.gaps import ExportGap
from bridge.exporter.state import ExporterBusy, ExportState
from support import breakpoints
from veen.crypto import hpke_public_key
from veen.digest import h

CHANGES = "export/z1/changes"
Media = Callable[[], Path]


class Cut(BaseException):
    """The process ends here."""


class Faults:
    """One operation on a medium goes wrong: the ``at``-th of a kind, from 1."""

    def __init__(self, medium: Path, name: str, at: int, error: BaseException | None) -> None:
        self.count = 0
        self.calls: list[str] = []
        self._medium = str(medium)
        self._name = name
        self._at = at
        self._error = error

    def install(self, patch: pytest.MonkeyPatch) -> None:
        for name in ("pwrite", "fdatasync", "fsync", "close", "mkdir"):
            patch.setattr(os, name, self._wrapped(name, getattr(os, name)))

    def _wrapped(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def operation(*arguments: Any, **options: Any) -> Any:
            if not self._is_ours(options.get("dir_fd", arguments[0])):
                return real(*arguments, **options)
            self.calls.append(name)
            self.count += name == self._name
            if name == self._name and self.count == self._at and self._error is not None:
                if name == "close":
                    real(*arguments)
                raise self._error
            return real(*arguments, **options)

        return operation

    def _is_ours(self, place: Any) -> bool:
        if isinstance(place, int):
            try:
                place = Path(f"/proc/self/fd/{place}").readlink()
            except OSError:
                return False
        return str(place).startswith(self._medium)


def run_with(zone: Any, medium: Path, name: str, at: int, error: BaseException | None) -> Faults:
    faults = Faults(medium, name, at, error)
    with pytest.MonkeyPatch.context() as patch:
        faults.install(patch)
        zone.export(medium)
    return faults


def raised(zone: Any, medium: Path, name: str, at: int, error: OSError) -> str | None:
    """What the exporter says of an error of the medium; None where there was none."""
    try:
        run_with(zone, medium, name, at, error)
    except BadMedium as detail:
        return str(detail)
    return None


def is_whole(bag: Path) -> bool:
    """Whether its signature, which is written last, is there."""
    return (bag / "carrier.sig").exists() and (bag / "carrier.sig").stat().st_size > 0


def cut() -> None:
    raise Cut


def entries(medium: Path) -> list[Path]:
    return sorted((medium / "agb0").iterdir()) if (medium / "agb0").is_dir() else []


def test_x01_killed_before_any_byte_is_on_the_medium(fresh: Any, new_medium: Media) -> None:
    medium = new_medium()
    cursor = fresh.past().cursor(CHANGES)
    with pytest.raises(Cut):
        run_with(fresh, medium, "mkdir", 1, Cut())
    assert list(medium.iterdir()) == []
    assert fresh.past().cursor(CHANGES) == cursor
    begun = fresh.past().unfinished()
    first, *_ = fresh.export(medium)
    assert (first.entry, fresh.past().unfinished()) == (begun, None)
    assert fresh.past().cursor(CHANGES).seq == cursor.seq + 3


def test_x02_killed_at_each_write_leaves_a_carrier_that_is_never_accepted(
    fresh: Any, new_medium: Media, check: Any
) -> None:
    at, verdicts = 1, set()
    while True:
        medium = new_medium()
        try:
            run_with(fresh, medium, "pwrite", at, Cut())
        except Cut:
            (bag,) = entries(medium)
            if is_whole(bag):
                break  # what was cut is the verifier beside it
            report = check(bag)
            assert not report.ok
            verdicts.add(report.verdict)
            at += 1
        else:
            break
    assert at > 7
    assert verdicts == {"E.SIZE/INCOMPLETE"}
    assert check(entries(medium)[0]).ok


def test_x03_a_full_medium_at_each_write_moves_nothing(fresh: Any, new_medium: Media) -> None:
    cursor, at = fresh.past().cursor(CHANGES), 1
    while True:
        failed, medium = len(fresh.failures()), new_medium()
        detail = raised(fresh, medium, "pwrite", at, OSError(errno.ENOSPC, "No space left"))
        if detail is None or any(map(is_whole, entries(medium))):
            break  # what failed, if anything, is the next carrier
        assert f"{medium}/agb0" in detail
        assert detail.endswith("No space left; use another medium")
        assert fresh.past().cursor(CHANGES) == cursor
        assert [failure.code for failure in fresh.failures()[failed:]] == ["BadMedium"]
        assert ExportState(fresh.settings().exporting.state).left() != []
        at += 1
    assert at > 7
    fresh.export(new_medium())
    assert fresh.past().cursor(CHANGES).seq == cursor.seq + 3
    assert ExportState(fresh.settings().exporting.state).left() == []


@pytest.mark.parametrize("name", ["pwrite", "fdatasync", "fsync", "close"])
def test_x04_an_error_of_the_medium_is_final(fresh: Any, new_medium: Media, name: str) -> None:
    cursor, medium = fresh.past().cursor(CHANGES), new_medium()
    detail = raised(fresh, medium, name, 2, OSError(errno.EIO, "Input/output error"))
    assert detail is not None
    assert "Input/output error" in detail
    assert not any(map(is_whole, entries(medium)))
    assert fresh.past().cursor(CHANGES) == cursor
    assert fresh.failures()[-1].medium == str(medium)


def test_x05_a_name_that_vanished_is_noticed_and_made_good(
    fresh: Any, new_medium: Media, check: Any
) -> None:
    medium, other = new_medium(), new_medium()
    (done, *_) = fresh.export(medium)
    bag = done.bags[0]
    (bag / "data" / "v001.agv").unlink()
    assert check(bag).verdict == "E.SIZE/INCOMPLETE"
    with fresh.exporter(other) as exporter:
        (again,) = exporter.again([ExportGap(CHANGES, done.entry.from_seq, done.entry.to_seq)])
    assert again.entry == done.entry
    assert check(again.bags[0]).ok


def test_x06_a_bit_that_turns_before_it_is_read_back_is_noticed(
    fresh: Any, new_medium: Media, monkeypatch: pytest.MonkeyPatch
) -> None:
    medium, real = new_medium(), os.fdatasync

    def rotting(handle: int) -> None:
        real(handle)
        path = Path(f"/proc/self/fd/{handle}").readlink()
        if path.name == "v001.agv" and path.is_relative_to(medium):
            raw = bytearray(path.read_bytes())
            raw[200] ^= 1
            path.write_bytes(raw)

    monkeypatch.setattr(os, "fdatasync", rotting)
    with pytest.raises(BadMedium, match=r"v001.agv does not read back .* byte 200"):
        fresh.export(medium)
    assert fresh.failures()[-1].offset == 200
    assert not (entries(medium)[0] / "carrier.sig").exists()


def test_x07_killed_between_the_signature_and_the_audit_entry(
    fresh: Any, new_medium: Media
) -> None:
    medium = new_medium()
    with breakpoints.before(ExportAudit.finish, cut), pytest.raises(Cut):
        fresh.export(medium)
    (bag,) = entries(medium)
    before = {path: path.read_bytes() for path in bag.rglob("*") if path.is_file()}
    assert fresh.successes(medium) == []
    # The log goes on meanwhile; what was begun is finished as it was.
    fresh.emit(CHANGES, 1)
    fresh.checkpoint()
    fresh.export(medium)
    assert [success.n for success in fresh.successes(medium)].count(
        fresh.successes(medium)[0].n
    ) == 1
    assert fresh.successes(medium)[0].bundle_id.hex()[:12] in bag.name
    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.parametrize("is_signed", [True, False], ids=["signed", "not signed"])
def test_x07_a_sealed_carrier_that_was_cut_off_is_found_again(
    fresh: Any, new_medium: Media, is_signed: bool
) -> None:
    medium, sealed = new_medium(), {"recipient": hpke_public_key(h(b"zone")).hex()}
    with breakpoints.before(ExportAudit.finish, cut), pytest.raises(Cut):
        fresh.export(medium, export=sealed)
    (bag,) = entries(medium)
    if not is_signed:
        (bag / "carrier.sig").unlink()
    done, *_ = fresh.export(medium, export=sealed, streams=[{"source": CHANGES}])
    assert done.bags == (bag,)
    assert len(fresh.successes(medium)) == len(entries(medium)) == 1
    assert is_whole(bag)


def test_x08_killed_after_the_audit_entry(fresh: Any, new_medium: Media) -> None:
    medium = new_medium()
    with breakpoints.after(ExportAudit.finish, cut), pytest.raises(Cut):
        fresh.export(medium)
    assert len(fresh.successes(medium)) == 1
    before = len(entries(medium))
    fresh.export(medium, streams=[{"source": CHANGES}])
    changes = [success for success in fresh.successes(medium) if success.stream == CHANGES]
    assert len(changes) == 1
    assert before == 1


def test_x09_of_two_exporters_one_has_to_wait(fresh: Any, new_medium: Media) -> None:
    state = ExportState(fresh.settings().exporting.state)
    with state.locked(), pytest.raises(ExporterBusy, match="another export is running"):
        fresh.export(new_medium())


def test_x10_nothing_behind_the_checkpoint_is_exported(fresh: Any, new_medium: Media) -> None:
    end = fresh.checkpoint().end(CHANGES).last_seq
    fresh.emit(CHANGES, 2)
    with fresh.exporter(new_medium()) as exporter:
        for item in exporter.export():
            fresh.emit(CHANGES, 1)
            assert item.entry.stream != CHANGES or item.entry.to_seq <= end
    assert fresh.past().cursor(CHANGES).seq == end
