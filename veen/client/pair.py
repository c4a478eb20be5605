"""A message with the receipt that gives it its place, both verified."""

from __future__ import annotations

from dataclasses import dataclass

from veen.label import EpochLabels
from veen.msg import Msg
from veen.receipt import Receipt


@dataclass(frozen=True, slots=True)
class Pair:
    msg: Msg
    receipt: Receipt


@dataclass(frozen=True, slots=True)
class Log:
    """One label of a stream: the log that a hub orders, and what its numbers count in."""

    labels: EpochLabels
    name: str
    epoch: int

    @property
    def label(self) -> bytes:
        return self.labels.at(self.epoch)

    def at(self, seq: int) -> str:
        """A place of it, for whoever is told that something is wrong there."""
        epoch = f" in epoch {self.epoch}" if self.labels.profile.epoch_sec else ""
        return f"{self.name}{epoch}, stream_seq {seq}"
