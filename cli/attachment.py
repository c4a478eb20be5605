"""``veen attachment``: check files against the message that they were sent with."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.console import show
from cli.options import ClientOption, ProfileOptions
from cli.passphrase import PassphraseFileOption, passphrase_of
from veen.client.attachment_check import verify_files
from veen.keystore.directory import ClientDir, Lock
from veen.limits import Limits
from veen.msg import Msg
from veen.seal import open_with_any

app = typer.Typer(help="Files that were sent with a message.", no_args_is_help=True)


@app.command()
def verify(
    msg: Annotated[Path, typer.Option(metavar="FILE", help="The message (send --dump-msg).")],
    client: ClientOption,
    file: Annotated[list[Path], typer.Option(metavar="FILE", help="An attachment; repeatable.")],
    profile: ProfileOptions,
    index: Annotated[
        list[int] | None,
        typer.Option(min=0, metavar="N", help="The place of each file, if not in order."),
    ] = None,
    passphrase_file: PassphraseFileOption = None,
) -> None:
    """Check that files are the attachments of a message: all of them, each in its place.

    Example: veen attachment verify --msg msg.cbor --client ./me --file a.bin --file b.bin
    """
    files = _in_place(file, index or list(range(len(file))))
    directory, limits = ClientDir(client.absolute()), Limits()
    passphrase = passphrase_of(directory, passphrase_file)
    with Lock(directory):
        keys = list(directory.open(passphrase).readers())
    found = Msg.decode(msg.read_bytes())
    opened = open_with_any(keys, found, profile.profile(), limits)
    coids = verify_files(opened, [one.read_bytes() for one in files], limits)
    show(
        {
            "msg_id": found.leaf_hash().hex(),
            "att_root": opened.header.att_root.hex() if opened.header.att_root else None,
            "attachments": [
                {"index": place, "file": str(one), "coid": coid.hex()}
                for place, (one, coid) in enumerate(zip(files, coids, strict=True))
            ],
        }
    )


def _in_place(files: list[Path], places: list[int]) -> list[Path]:
    """The root commits to all attachments at once, so none may be missing."""
    if sorted(places) != list(range(len(files))):
        raise typer.BadParameter(
            f"--index {places} for {len(files)} files: each place from 0 on is due once, "
            "for the root is over all attachments of the message."
        )
    return [files[places.index(place)] for place in range(len(files))]
