"""Make or rotate an identity once for every file operation and kind of fault; print what is wrong.

A process of its own, single-threaded, so that each run is a fork of it and starts at once.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from support.hub import faulty_os
from veen.errors import VeenError
from veen.keystore.card import Identity
from veen.keystore.directory import ClientDir, NoIdentity
from veen.keystore.sealed import LEAST

NOW = 1_700_000_000
PASSPHRASE = b"correct horse battery staple"
DONE, REFUSED = 0, 3
Action = Callable[[ClientDir], Identity]

faulty_os.OPERATIONS = (*faulty_os.OPERATIONS, "chmod")


def create(client: ClientDir) -> Identity:
    return client.create(now=NOW, random=os.urandom, passphrase=PASSPHRASE, cost=LEAST)


def rotate(client: ClientDir) -> Identity:
    return client.rotate(NOW + 60, os.urandom, PASSPHRASE)


def run(action: Action, client: ClientDir, kind: str, at: int, note: Path) -> int:
    """The wait status of one run; ``note`` gets the new client_id and the operations, if any."""

    def work() -> None:
        faults = faulty_os.FaultyOs(kind, at)
        faults.install()
        try:
            identity = action(client)
        except (VeenError, OSError):
            os._exit(REFUSED)
        note.write_text(f"{identity.client_id.hex()} {faults.count}")

    return in_child(work)


def in_child(work: Callable[[], None]) -> int:
    """Run ``work`` in a process of its own; the wait status it ends with."""
    pid = os.fork()
    if pid == 0:
        code = 70
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitpid(pid, 0)[1]


def check(client: ClientDir, before: Identity | None, client_id: str | None) -> None:
    """What is there is whole: the old or the new, and the new where it was reported."""
    try:
        result = client.open(PASSPHRASE)
    except NoIdentity:
        assert before is None, "the identity is gone"
        assert client_id is None, "a reported identity is gone"
        result = create(client)
    assert client_id is None or result.client_id.hex() == client_id, "a reported rotation is gone"
    assert client.read_card() == result.card, "the card is of another identity"
    if before is not None and result.client_id != before.client_id:
        (retired,) = result.retired_client_ids
        assert retired.client_id == before.client_id, "the old client_id is forgotten"
        assert result.readers()[1:] == before.readers(), "an old prekey is lost"
    for path in (client.keystore, client.card, client.root):
        assert path.stat().st_mode & 0o077 == 0, f"{path.name} is open to others"
    assert rotate(client).client_id != result.client_id
    assert client.open(PASSPHRASE).card == client.read_card()


def prepared(root: Path, template: ClientDir | None) -> ClientDir:
    """A directory as it is before the action: an identity, or a directory that is too open."""
    shutil.rmtree(root, ignore_errors=True)
    if template is None:
        root.mkdir()
        root.chmod(0o755)
    else:
        shutil.copytree(template.root, root)
    return ClientDir(root)


def main(directory: Path, name: str, kinds: list[str]) -> None:
    action, template, before = create, None, None
    if name == "rotate":
        action, template = rotate, ClientDir(directory / "template")
        before = create(template)
    note = directory / "note"
    run(action, prepared(directory / "run", template), "none", 0, note)
    operations = int(note.read_text().split()[1])
    runs = 0
    for kind in kinds:
        for at in range(1, operations + 1):
            client = prepared(directory / "run", template)
            note.unlink(missing_ok=True)
            status = run(action, client, kind, at, note)
            if os.WIFEXITED(status) and os.WEXITSTATUS(status) not in (DONE, REFUSED):
                print(f"{kind} at {at}: ended with {os.WEXITSTATUS(status)}")
            client_id = note.read_text().split()[0] if note.exists() else None
            if in_child(lambda: check(client, before, client_id)):  # noqa: B023
                print(f"{kind} at {at}: wrong afterwards")
            runs += 1
    print(f"{runs} runs over {operations} operations")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
