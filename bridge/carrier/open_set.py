"""The bags of one carrier, from one medium or several, put together again."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from bridge.carrier import parity
from bridge.carrier.bag import volume_path
from bridge.carrier.bag_path import BagPath, name_in_text
from bridge.carrier.carrier import Carrier
from bridge.carrier.damage import Damage, header_of, verify_hash
from bridge.carrier.open_bag import Bag, Found
from bridge.carrier.span import Piece, Span
from bridge.carrier.volume import HEADER_BYTES
from bridge.carrier.watch import Count, Watch, unwatched
from bridge.refusal import Fault, Refused
from bridge.trust import TrustStore
from veen.client.progress import Progress
from veen.digest import Hasher


class CarrierSet:
    """Checks run in the order of the methods; each raises Refused."""

    def __init__(self, roots: Sequence[Path | BagPath]) -> None:
        self._stack = ExitStack()
        self._bags: list[Bag] = []
        self._good: dict[int, Span] = {}
        self._found: dict[int, list[Found]] = {}
        self.notes: list[str] = []
        try:
            for root in roots:
                self._add(root)
        except BaseException:
            self.close()
            raise
        if not self._bags:
            raise Refused(Fault.INCOMPLETE, "no bag was given")
        self.carrier: Carrier = self._bags[0].carrier

    def _add(self, root: Path | BagPath) -> None:
        bag = Bag(root)
        self._stack.callback(bag.close)
        if self._bags and bag.carrier != self._bags[0].carrier:
            self.notes.append(f"bag {name_in_text(root.name)}: of another carrier; ignored")
        else:
            self._bags.append(bag)

    def verify_signatures(self, trust: TrustStore) -> str:
        """The name of the exporter who signed every bag."""
        signers = {bag.signer() for bag in self._bags}
        unknown = signers - trust.exporters.keys()
        if unknown:
            why = trust.revoked.get(min(unknown))
            what = "no exporter's key in the trust store" if why is None else f"revoked: {why}"
            raise Refused(Fault.SIGNER, f"signed by {min(unknown).hex()}, which is {what}")
        return ", ".join(sorted(trust.exporters[one] for one in signers))

    def verify_complete(self) -> None:
        """Refuse when more volumes are missing, or of a wrong size, than parity makes good."""
        for bag in self._bags:
            for volume in bag.volumes():
                self._found.setdefault(volume.header.index, []).append(volume)
            self.notes += bag.notes
        lost = []
        for index, due in enumerate(self.carrier.volumes):
            here = [one for one in self._found.get(index, ()) if one.size == due.size]
            if not here:
                lost.append(self._lost(index))
            self._found[index] = here
        self._refuse_many(lost, Fault.INCOMPLETE)

    def verify_intact(self, watch: Watch = unwatched) -> None:
        """Refuse when more volumes are lost or changed than parity makes good."""
        bad: dict[int, Damage] = {}
        with watch("hashing volumes", "bytes") as progress:
            count = Count(sum(one.size for some in self._found.values() for one in some), progress)
            for index in range(len(self.carrier.volumes)):
                damage = self._damage(index, count)
                if damage is not None:
                    bad[index] = damage
        changed = any(self._found[index] for index in bad)
        lost = [f"{volume_path(self.carrier, one)} {damage.told}" for one, damage in bad.items()]
        offset = next(iter(bad.values())).offset if len(bad) == 1 else None
        self._refuse_many(lost, Fault.VOLUME if changed else Fault.INCOMPLETE, offset)
        self.notes += [f"{one}: made good from parity" for one in lost]

    def stored(self, scratch: Path, watch: Watch = unwatched) -> Span:
        """What the volumes hold, as one; lost ones are rebuilt below ``scratch``."""
        missing = [index for index in range(self.carrier.data) if index not in self._good]
        if missing:
            with watch("rebuilding from parity", "bytes") as progress:
                self._rebuild(missing, scratch, progress)
        pieces = [self._good[index].pieces for index in range(self.carrier.data)]
        return Span(piece for found in pieces for piece in found)

    def close(self) -> None:
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _refuse_many(self, lost: Sequence[str], fault: Fault, offset: int | None = None) -> None:
        if len(lost) > self.carrier.parity:
            rest = f"; parity makes good {self.carrier.parity}" if self.carrier.parity else ""
            raise Refused(fault, f"{'; '.join(lost)}{rest}", offset=offset)

    def _lost(self, index: int) -> str:
        path, due = volume_path(self.carrier, index), self.carrier.volumes[index]
        where = f" (medium {due.bag} of {self.carrier.bags})" if self.carrier.bags > 1 else ""
        for one in self._found.get(index, ()):
            return f"{path} has {one.size} bytes of {due.size}{where}"
        return f"{path} is missing{where}"

    def _damage(self, index: int, count: Count) -> Damage | None:
        """Why no copy of a volume can be used; None once one is."""
        found = Damage("is missing")
        for volume in self._found[index]:
            due = self.carrier.volumes[index].file_hash
            wrong = verify_hash(volume, due, self.carrier, count)
            if wrong is None:
                size = volume.size - HEADER_BYTES
                self._good[index] = Span([Piece(volume.fd, HEADER_BYTES, size)])
                return None
            found = wrong
        return found

    def _rebuild(self, missing: Sequence[int], scratch: Path, progress: Progress) -> None:
        files = {index: self._scratch_file(scratch, index) for index in missing}
        digests = {index: Hasher() for index in missing}
        left = {index: self.carrier.volumes[index].size - HEADER_BYTES for index in missing}
        size = self.carrier.volumes[0].size - HEADER_BYTES
        count = Count(sum(left.values()), progress)
        for blocks in parity.rebuild(self._good, self.carrier.data, self.carrier.parity, size):
            for index in missing:
                block = blocks[index][: left[index]]
                left[index] -= len(block)
                digests[index].update(block)
                os.write(files[index], block)
                count.add(len(block))
        for index in missing:
            self._verify_rebuilt(index, files[index], digests[index].digest())

    def _verify_rebuilt(self, index: int, fd: int, digest: bytes) -> None:
        due, carrier = self.carrier.volumes[index], self.carrier
        size = due.size - HEADER_BYTES
        span = Span([Piece(fd, 0, size)])
        whole = Hasher()
        whole.update(header_of(carrier, index, size, digest))
        for block in span.blocks():
            whole.update(block)
        if whole.digest() != due.file_hash:
            told = f"{volume_path(carrier, index)} does not come back from parity"
            raise Refused(Fault.VOLUME, told)
        self._good[index] = span

    def _scratch_file(self, scratch: Path, index: int) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        path = scratch / f"rebuilt-{index}"
        fd = os.open(path, flags, 0o600)
        self._stack.callback(os.close, fd)
        # It lives as long as it is open.
        path.unlink()
        return fd
