"""H07: what strangers put into a log is left out; what its writers wrote never is."""

from __future__ import annotations

import pytest

from veen.errors import BadSeal, Undecryptable, Untrusted, VeenError
from veen.foreign import Foreign

OWN, OTHER, STRANGER = b"own", b"other", b"stranger"


def refuse(seq: int, error: VeenError) -> VeenError:
    return Untrusted(f"{seq}: {error}")


def test_h07_a_stranger_is_left_out_wherever_it_stands() -> None:
    foreign = Foreign(refuse, OWN)
    foreign.unread(1, STRANGER, Undecryptable("sealed"))
    foreign.read(OWN)
    foreign.unread(3, STRANGER, BadSeal("padding"))
    foreign.finish()


@pytest.mark.parametrize("error", [Undecryptable("sealed"), BadSeal("padding")])
def test_h07_an_entry_of_the_writer_that_does_not_open_is_refused(error: VeenError) -> None:
    with pytest.raises(Untrusted, match=r"^7: "):
        Foreign(refuse, OWN).unread(7, OWN, error)


def test_h07_who_has_written_an_entry_is_a_writer_before_and_after_it() -> None:
    after = Foreign(refuse, OWN)
    after.read(OTHER)
    with pytest.raises(Untrusted, match=r"^2: "):
        after.unread(2, OTHER, Undecryptable("sealed"))
    before = Foreign(refuse, OWN)
    before.unread(1, OTHER, Undecryptable("sealed"))
    with pytest.raises(Untrusted, match=r"^1: "):
        before.read(OTHER)


def test_h07_a_reader_that_opens_nothing_may_lack_the_key() -> None:
    unknown = Foreign(refuse)
    unknown.unread(4, STRANGER, Undecryptable("sealed"))
    with pytest.raises(Untrusted, match=r"^4: "):
        unknown.finish()
    # No key opens these, so it lacks none.
    broken = Foreign(refuse)
    broken.unread(4, STRANGER, BadSeal("padding"))
    broken.finish()
