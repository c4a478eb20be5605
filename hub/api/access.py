"""Who may read what: every read names a label, and a label belongs to a stream."""

from __future__ import annotations

from dataclasses import dataclass

from hub.api.credentials import Credentials
from hub.api.refused import Refused
from hub.api.stream_names import StreamNames
from hub.policy import Principal
from hub.settings import Settings
from hub.storage.index import LabelRow
from hub.storage.reader import LogReader
from veen.errors import Code

_EVERYTHING = "*"


@dataclass(frozen=True, slots=True)
class Viewer:
    """Whoever reads: a principal, or anyone where reads are open."""

    principal: Principal | None
    names: StreamNames
    reader: LogReader

    def label(self, label: bytes) -> LabelRow:
        """The label, if the viewer may read it."""
        row = self.reader.label(label)
        if not self.may_read(row):
            raise Refused(Code.FORBIDDEN, "the stream of this label is not yours", {"label": label})
        return row

    def may_read(self, row: LabelRow) -> bool:
        stream = self.names.known(row.stream_id)
        return self.may_read_stream(stream.name) if stream else self._reads_everything()

    def may_read_stream(self, name: str) -> bool:
        return self.principal is None or self.principal.may_read(name)

    def manages(self) -> bool:
        return self.principal is None or self.principal.role.manages

    def refuse_without_recorder_checkpoints(self) -> None:
        if self.principal is None or self.principal.role.reads_recorder_checkpoints:
            return
        role = self.principal.role.title
        raise Refused(Code.FORBIDDEN, f"role {role} does not read recorder checkpoints")

    def _reads_everything(self) -> bool:
        return self.principal is None or _EVERYTHING in self.principal.read


class Access:
    def __init__(self, settings: Settings, names: StreamNames, reader: LogReader) -> None:
        self._open = settings.reads == "open"
        self._names = names
        self._reader = reader
        self._credentials = Credentials(settings.policy)

    def viewer(self, body: bytes) -> Viewer:
        """Who sends the current request with this body; E.UNAUTHORIZED when nobody known."""
        principal = None if self._open else self._credentials.principal(body)
        return Viewer(principal, self._names, self._reader)

    def manager(self, body: bytes) -> Principal:
        """A principal that may change what the hub knows, however open its reads are."""
        principal = self._credentials.principal(body)
        if not principal.role.manages:
            raise Refused(Code.FORBIDDEN, f"role {principal.role.title} does not manage the hub")
        return principal
