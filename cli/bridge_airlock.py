"""``veen bridge approve`` and ``receipt``, and where the importing side stands: what lies in the
airlock, by the beginning of a bundle's name.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from bridge.importer.airlock import Airlock
from bridge.importer.approvals import APPROVE, REJECT, Approval, decide
from bridge.importer.lost import is_lost
from bridge.importer.outcome import State
from bridge.importer.quarantined import quarantined
from bridge.importer.run import importing
from bridge.importer.status import standing
from bridge.settings import DEFAULT_PATH, Settings, load
from cli.bridge_options import BridgeConfigOption
from cli.console import show
from cli.failure import Refused
from cli.options import ClientOption
from cli.passphrase import PassphraseFileOption, passphrase_of
from veen.keystore.directory import ClientDir

_REBUILD: Final = (
    "the ledger is lost, or older than the last import: veen bridge import --rebuild-ledger"
)
_MOST_QUARANTINED: Final = 25
"""How many are shown; all are counted."""
_HEX: Final = re.compile(r"[0-9a-f]{8,64}")

BundleArgument = Annotated[
    str, typer.Argument(metavar="BUNDLE", help="A bundle_id, or its first 8 digits or more.")
]


def approve(
    bundle: BundleArgument,
    client: ClientOption,
    config: BridgeConfigOption = DEFAULT_PATH,
    reject: Annotated[
        bool, typer.Option("--reject", help="Decide against it: it goes to quarantine.")
    ] = False,
    passphrase_file: PassphraseFileOption = None,
) -> None:
    """Sign for a bundle that waits for approvals, or against it.

    Each person has a client directory of their own, and decides once about a bundle. Once all
    signatures are there, veen bridge import lets it in.

    Example: veen bridge approve 4f2a90c1 --config bridge.toml --client ./alice
    """
    airlock = _airlock(load(config))
    held = [one for one in standing(airlock).unfinished if one.state == State.BLOCKED.value]
    found = _one(bundle, {one.bundle_id.hex() for one in held}, "waits for approvals")
    directory = ClientDir(client.absolute())
    key = directory.open(passphrase_of(directory, passphrase_file)).client
    decision = REJECT if reject else APPROVE
    path = decide(airlock.approvals, Approval.of(key, bytes.fromhex(found), decision))
    show(
        {
            "bundle_id": found,
            "decision": decision,
            "approver": key.public.hex(),
            "file": str(path),
            "next": "veen bridge import",
        }
    )


def receipt(
    bundle: BundleArgument,
    config: BridgeConfigOption = DEFAULT_PATH,
    svg: Annotated[
        Path | None, typer.Option("--svg", metavar="FILE", help="Write the page with the QR code.")
    ] = None,
) -> None:
    """Print the receipt of an import: a page, with six words for two people to compare.

    Example: veen bridge receipt 4f2a90c1 --config bridge.toml --svg receipt.svg
    """
    folder = _airlock(load(config)).receipts
    names = {path.stem for path in folder.glob("*.txt")} if folder.is_dir() else set()
    found = _one(bundle, names, "has a receipt here")
    text = (folder / f"{found}.txt").read_text()
    if svg is not None:
        svg.write_text((folder / f"{found}.svg").read_text())
    words = next(line[12:] for line in text.splitlines() if line.startswith("Words"))
    show({"bundle_id": found, "words": words, "text": text}, text)


def offline_status(settings: Settings) -> None:
    """Where the importing side stands; ``veen bridge status`` shows it."""
    airlock = _airlock(settings)
    found = standing(airlock)
    outbox = ClientDir(settings.bridge.client).outbox
    next_command = _REBUILD if is_lost(airlock.ledger, outbox) else found.next_command()
    show(
        {
            "zone": settings.name,
            "inbox": found.inbox,
            "bundles": found.bundles,
            "unclosed": found.unclosed,
            "uncovered": found.uncovered,
            "streams": [
                {
                    "stream": one.stream.name,
                    "hub": one.stream.source_hub_id.hex(),
                    "held": ",".join(f"{span.first}..{span.last}" for span in one.held) or None,
                    "frozen_at": one.frozen_at,
                }
                for one in found.streams
            ],
            "unfinished": [
                {"bundle_id": one.bundle_id.hex(), "state": one.state, "told": one.told}
                for one in found.unfinished
            ],
            **_quarantine(airlock),
            "next": next_command,
        }
    )


def _quarantine(airlock: Airlock) -> dict[str, Any]:
    """What is kept apart, and why; nothing where nothing is."""
    newest, total = quarantined(airlock.quarantine(""), _MOST_QUARANTINED)
    if not newest:
        return {}
    rows = [{"path": str(one.path), "code": one.code, "told": one.told} for one in newest]
    return {"quarantined": total, "quarantine": rows}


def _airlock(settings: Settings) -> Airlock:
    return Airlock(importing(settings).state)


def verify_prefix(text: str) -> None:
    if not _HEX.fullmatch(text):
        raise typer.BadParameter(f"{text!r}: a bundle is named by 8 to 64 digits of its bundle_id")


def _one(prefix: str, known: set[str], what: str) -> str:
    verify_prefix(prefix)
    found = sorted(one for one in known if one.startswith(prefix))
    if len(found) != 1:
        count = "no bundle" if not found else f"{len(found)} bundles"
        raise Refused(f"{count} of id {prefix} {what}; see veen bridge status")
    return found[0]
