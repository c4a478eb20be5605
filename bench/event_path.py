"""Count the files and functions of the product that a warm event passes, from emit to receipt.

Client, HTTP edge and sequencer run in this one process, each in its own threads, over a real
socket and real files, with the profile hook of the interpreter in every thread. The HTTP server is
werkzeug's: the worker class of gunicorn is not counted, and each request is served by a new thread
that connects to the sequencer (six functions that a worker passes only once).

An event is warm when others of its stream were acknowledged before. Each of several events is
recorded by itself, from the call of ``Emitter.emit`` until ``Emitter.flush`` has returned its
verified receipt; a function counts when all of these events passed it, which leaves out what a
timer starts meanwhile. Comprehensions and lambdas belong to the function around them.
"""

from __future__ import annotations

import logging
import os
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from werkzeug.serving import make_server

from hub.api.app import create_app
from hub.sequencer.service import Sequencer
from hub.settings import load
from hub.storage.datadir import DataDir
from recorder.emit.emitter import Emitter, Observation
from recorder.stream_map import RecorderStream, RecorderStreamMap
from veen.captoken import issue
from veen.client.client import Client
from veen.crypto import SigningKey
from veen.digest import h
from veen.keystore.directory import ClientDir
from veen.label import stream_id

ROOT = Path(__file__).parents[1]
FOLDERS = ("veen", "hub", "recorder")
STREAM = "record/app/orders"
WARM_EVENTS, EVENTS = 5, 7
_ISSUER = SigningKey(h(b"issuer of the event path"))
_INSIDE_ANOTHER = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>", "<lambda>")


@dataclass(frozen=True, slots=True)
class EventPath:
    """The functions that every recorded event passed, as (file, qualified name)."""

    functions: frozenset[tuple[str, str]]

    @property
    def files(self) -> list[str]:
        return sorted({file for file, _ in self.functions})

    def document(self) -> dict[str, Any]:
        return {
            "files": len(self.files),
            "functions": len(self.functions),
            "passed": [f"{file}:{name}" for file, name in sorted(self.functions)],
        }

    def table(self) -> str:
        counts = Counter(file for file, _ in self.functions)
        lines = [f"| {file} | {counts[file]} |" for file in self.files]
        total = f"| {len(self.files)} files | {len(self.functions)} |"
        return "\n".join(["| file | functions |", "|---|---|", *lines, total])


class Recorder:
    """Notes the code objects that start while it is switched on, in every thread."""

    def __init__(self) -> None:
        self._codes: set[CodeType] | None = None

    def install(self) -> None:
        """For this thread and for those that start later."""
        threading.setprofile(self._note)
        sys.setprofile(self._note)

    def remove(self) -> None:
        threading.setprofile(None)
        sys.setprofile(None)

    @contextmanager
    def recording(self, codes: set[CodeType]) -> Iterator[None]:
        self._codes = codes
        try:
            yield
        finally:
            self._codes = None

    def _note(self, frame: FrameType, event: str, _argument: object) -> None:
        codes = self._codes
        if event == "call" and codes is not None:
            codes.add(frame.f_code)


def trace() -> EventPath:
    recorder = Recorder()
    recorder.install()
    try:
        with tempfile.TemporaryDirectory(prefix="veen-path-") as folder, ExitStack() as stack:
            port = stack.enter_context(_hub(Path(folder)))
            emitter = stack.enter_context(_emitter(Path(folder), port))
            for _ in range(WARM_EVENTS):
                _send(emitter)
            events = [_record_event(recorder, emitter) for _ in range(EVENTS)]
            return EventPath(frozenset.intersection(*events))
    finally:
        recorder.remove()


def _record_event(recorder: Recorder, emitter: Emitter) -> frozenset[tuple[str, str]]:
    codes: set[CodeType] = set()
    with recorder.recording(codes):
        _send(emitter)
    return frozenset(product_functions(codes))


def product_functions(codes: set[CodeType]) -> Iterator[tuple[str, str]]:
    for code in codes:
        path = Path(code.co_filename)
        if code.co_name in _INSIDE_ANOTHER or not path.is_relative_to(ROOT):
            continue
        file = path.relative_to(ROOT)
        if file.parts[0] in FOLDERS:
            yield file.as_posix(), code.co_qualname


def _send(emitter: Emitter) -> None:
    emitter.emit(
        Observation(
            event_type="order.placed", subject_id="user:7", origin="shop", payload={"order": 4711}
        )
    )
    if emitter.flush().acknowledged != 1:
        raise AssertionError("the event was not acknowledged")


@contextmanager
def _hub(folder: Path) -> Iterator[int]:
    """A gated hub in this process; the port it listens on."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    datadir, config = DataDir(folder / "hub"), folder / "hub.toml"
    datadir.create()
    config.write_text(f'issuers = ["{_ISSUER.public.hex()}"]\n[[streams]]\nname = "{STREAM}"\n')
    settings = load(config)
    sequencer = Sequencer(datadir, settings, os.urandom)
    server = make_server("127.0.0.1", 0, create_app(settings, datadir), threaded=True)
    threads = [threading.Thread(target=run) for run in (sequencer.run, server.serve_forever)]
    for thread in threads:
        thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        sequencer.stop()
        for thread in threads:
            thread.join()
        server.server_close()


@contextmanager
def _emitter(folder: Path, port: int) -> Iterator[Emitter]:
    """An emitter of one client, with a capability for the stream; it seals in this process."""
    home = ClientDir(folder / "client")
    home.create(now=int(time.time()), random=os.urandom, passphrase=None)
    streams = RecorderStreamMap([RecorderStream(name=STREAM, event_types=("order.placed",))], ())
    with Client.open(home.root, f"http://127.0.0.1:{port}", sealers=0) as client:
        token = issue(
            _ISSUER,
            subject_pk=client.session.identity.client_id,
            stream_ids=[stream_id(STREAM)],
            ttl=86_400,
        )
        client.session.api.authorize(token)
        client.renew(token)
        yield Emitter(client, streams, clock=lambda: time.time_ns() // 1_000_000)
