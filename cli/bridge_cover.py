"""An import covered by a recorder checkpoint of its zone and anchored, where the settings of the
bridge name a recorder that does it (AGB0 4.5, ANCHOR0).
"""

from __future__ import annotations

import shlex
import time
from pathlib import Path

from bridge.importer.covering import Cover, Covered
from bridge.importer.run import importing
from bridge.settings import Settings
from cli.checkpoint_options import ActorOptions
from cli.recorder_options import refuse_changed_map
from recorder.anchor.book import Book
from recorder.checkpoints import create as creation
from recorder.checkpoints import hub_papers
from recorder.checkpoints.door import Door
from recorder.checkpoints.home import CheckpointName
from veen.recorder_checkpoint import RecorderCheckpoint
from veen.settings_table import BadSettings


def cover_of(settings: Settings) -> Cover | None:
    """None where no checkpoint is asked for; a recorder of another hub is refused at once."""
    config = importing(settings).checkpoint
    if config is None:
        return None
    at = ActorOptions(config=config)
    door = at.door()
    if door.settings.hub.hub_id != settings.hub.hub_id:
        raise BadSettings(
            f"[import] checkpoint: {config} is of hub {door.settings.hub.hub_id.hex()}, and the "
            f"bridge of hub {settings.hub.hub_id.hex()}"
        )
    return lambda: _covered(at, door, config)


def _covered(at: ActorOptions, door: Door, config: Path) -> Covered:
    refuse_changed_map(door.settings)
    with at.session(door.settings) as session:
        found = creation.create(session, door.shelf(), door.settings.profile_id()).checkpoint
        hub_papers.keep(door.home, session)
    if not door.is_anchoring():
        return Covered(found)
    known = door.refs().of(found.checkpoint_id)
    return Covered(found, known[-1].name) if known else _anchored(door.book(), found, config)


def _anchored(book: Book, checkpoint: RecorderCheckpoint, config: Path) -> Covered:
    now = int(time.time())
    outcome = book.do(book.ask(CheckpointName.of(checkpoint), now), now)
    if outcome.ref is not None:
        return Covered(checkpoint, outcome.ref.name)
    again = f"veen anchor publish --due --config {shlex.quote(str(config))}"
    return Covered(checkpoint, None, f"the checkpoint has no anchor yet: {outcome.error}; {again}")
