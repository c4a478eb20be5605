"""A log file that a tail follows."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

from recorder.emit.emitter import Emitter
from recorder.emit.json_lines import LineForm
from recorder.emit.tail import FileTail, TailRules
from veen.events import RecordEvent

TYPE = "order.placed"


class Log:
    """A log file, the tail on it, and what the outbox holds of it."""

    def __init__(self, folder: Path, emitter: Emitter) -> None:
        self.path = folder / "app.log"
        self.emitter = emitter
        self.number = 0

    def write(self, count: int = 1) -> None:
        for _ in range(count):
            self.raw(self.a_line(n=self.number))
            self.number += 1

    def a_line(self, **more: Any) -> bytes:
        line = {"event_type": TYPE, "subject_id": "u", "origin": "o"} | more
        return json.dumps(line).encode() + b"\n"

    def raw(self, content: bytes) -> None:
        with self.path.open("ab") as file:
            file.write(content)

    def rotate(self) -> None:
        for number in (8, 7, 6, 5, 4, 3, 2, 1):
            if self.rotated(number).exists():
                self.rotated(number).rename(self.rotated(number + 1))
        self.path.rename(self.rotated(1))
        self.path.touch()

    def copy_and_truncate(self) -> None:
        shutil.copyfile(self.path, self.rotated(1))
        os.truncate(self.path, 0)

    def rotated(self, number: int) -> Path:
        return self.path.with_name(f"app.log.{number}")

    def tail(self, **changes: Any) -> FileTail:
        usual: dict[str, Any] = {
            "form": LineForm(payload=None), "subject_id": "file", "origin": "f", "settle_ms": 0,
        }  # fmt: skip
        return FileTail(self.path, "tail", self.emitter, TailRules(**(usual | changes)))

    def read(self, **changes: Any) -> None:
        """Until there is nothing more; each step by a tail of its own, as after a crash."""
        while not self.tail(**changes).step().is_idle:
            pass

    def stored(self) -> list[RecordEvent]:
        outbox = self.emitter._client._outbox
        rows = outbox._rows("SELECT id FROM events ORDER BY id")
        return [RecordEvent.decode(outbox.message(item).body) for (item,) in rows]

    def numbers(self) -> list[int]:
        return [item.value()["n"] for item in self.stored()]
