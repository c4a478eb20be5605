"""Every command of ``veen`` once, in an order in which each finds what it needs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from support.cli.bridge_scenario import show_bridge
from support.cli.cli_binary import OPEN, Done, end_hub, veen
from support.cli.cli_normal import normalised
from support.cli.recorder_scenario import show_recorder
from zone.services import free_port

STREAM = ("--stream", "core/main")
AT = ("--hub", "hub", "--client", "me")
Veen = Callable[..., Done]


@dataclass(frozen=True)
class Shown:
    """What a command printed, by a name that begins with the words of the command."""

    name: str
    command: str
    done: Done

    def text(self, folder: Path) -> str:
        parts = (f"$ {self.command}", f"exit {self.done.code}", "", self.done.out)
        noted = ("--- standard error", self.done.err) if self.done.err else ()
        return normalised("\n".join((*parts, *noted)), str(folder))


class World:
    """A folder with clients and a hub; ``form`` is added to every command that is shown.

    ``veen`` runs a command.
    """

    def __init__(self, folder: Path, *form: str, veen: Veen = veen) -> None:
        self.folder = folder
        self.veen = veen
        self.form = form
        self.port = free_port()
        self.shown: list[Shown] = []

    def show(self, name: str, *words: object) -> None:
        """Run a command whose output is kept; ``words`` begin with those of the command."""
        self.add(name, words, self.veen(*words, *self.form, cwd=self.folder))

    def add(self, name: str, words: Iterable[object], done: Done) -> None:
        self.shown.append(Shown(name, " ".join(map(str, ("veen", *words, *self.form))), done))
        assert done.code == 0, (words, done)

    def do(self, *words: object) -> Done:
        done = self.veen(*words, cwd=self.folder)
        assert done.code == 0, (words, done)
        return done

    def run(self, only: str | None = None) -> list[Shown]:
        """All of it, or one part that stands alone: self_tests, recorder, bridge or zones."""
        try:
            for part in (
                self._identities, self._hub, self._messages, self._archive, self._capabilities,
                self._portable, self._state, self._measure, self._checkpoints, self._stopped,
                self._secured, self._words, self._self_tests, self._recorder, self._bridge,
                self._zones,
            ):  # fmt: skip
                if only is None or part.__name__ == f"_{only}":
                    part()
        finally:
            end_hub(self.folder)
        return self.shown

    def _identities(self) -> None:
        self.show("keygen", "keygen", "--out", "me", "--insecure-plain")
        self.do("keygen", "--out", "admin", "--insecure-plain")

    def _hub(self) -> None:
        document = json.loads(self.do("id", "show", "--client", "admin", "--json").out)
        self.start = (
            "hub", "start", "--data-dir", "hub", "--listen", f"127.0.0.1:{self.port}", *OPEN,
            "--issuer", document["id_sign_public"],
        )  # fmt: skip
        self.show("hub-start", *self.start)
        for name in ("status", "key", "profile"):
            self.show(f"hub-{name}", "hub", name, "--hub", f"http://127.0.0.1:{self.port}")

    def _messages(self) -> None:
        (self.folder / "a.bin").write_bytes(b"one")
        (self.folder / "b.bin").write_bytes(b"two")
        self.show(
            "send", "send", "--hub", f"http://127.0.0.1:{self.port}", "--client", "me", *STREAM,
            "--body", '{"text":"hello"}', "--dump-msg", "msg.cbor", "--dump-receipt", "r.cbor",
        )  # fmt: skip
        self.show(
            "send.attachments", "send", *AT, *STREAM, "--body", "[-1.5]", "--dump-msg", "att.cbor",
            "--attach", "a.bin", "--attach", "b.bin", "--schema", "core/main",
        )  # fmt: skip
        self.show("send.queue", "send", *AT, *STREAM, "--body", "three", "--raw", "--queue")
        self.show("outbox-show", "outbox", "show", *AT)
        self.show("outbox-flush", "outbox", "flush", *AT)
        self.show("stream", "stream", *AT, *STREAM, "--from", "1", "--with-proof")
        self.show(
            "attachment-verify", "attachment", "verify", "--msg", "att.cbor", "--client", "me",
            "--file", "a.bin", "--file", "b.bin",
        )  # fmt: skip
        self.show(
            "verify-receipt", "verify-receipt", *AT, *STREAM, "--receipt", "r.cbor",
            "--msg", "msg.cbor",
        )  # fmt: skip

    def _archive(self) -> None:
        """While there is one label only: of more, the order would be by chance."""
        store, keys = ("--store", f"file://{self.folder}/store"), ("--client", "admin")
        self.do("hub", "stop", "--data-dir", "hub")
        card = ("--escrow", "admin/identity_card.pub")
        self.show("archive-push", "archive", "push", "--data-dir", "hub", *store, *card)
        self.show("archive-status", "archive", "status", *store)
        self.show("archive-verify", "archive", "verify", *store, "--hub-identity", "hub")
        copy = ("--to-store", f"file://{self.folder}/copy")
        self.show("archive-clone", "archive", "clone", *store, *copy)
        self.show("archive-forget", "archive", "forget", *store, "--keep", "4", "--delete")
        self.show("archive-restore", "archive", "restore", *store, *keys, "--to", "restored")
        until = ("--at", "4102444800")
        self.show("archive-fork", "archive", "fork", *store, *keys, "--to", "fork", *until)
        self._over_the_archive(*store)
        self.do(*self.start)

    def _over_the_archive(self, *store: str) -> None:
        signer = ("--sign-with", "admin", "--report", "audit.json", "--hub-identity", "hub")
        self.show("audit-log", "audit", "log", *store, *signer)
        of = (*store, *STREAM, "--client", "me")
        self.show("fold", "fold", "counter.map", *of)
        what = ("--overlay", "counter.map", "--out", "state.cbor")
        self.show("snapshot-create", "snapshot", "create", *of, *what)
        self.show("snapshot-verify", "snapshot", "verify", *of, "--snapshot", "state.cbor")

    def _capabilities(self) -> None:
        self.show(
            "cap-issue", "cap", "issue", "--issuer", "admin", "--subject", "me", *STREAM,
            "--ttl", "600", "--rate", "5/s,10", "--out", "cap.cbor",
        )  # fmt: skip
        self.show("cap-show", "cap", "show", "--cap", "cap.cbor")
        self.show("cap-authorize", "cap", "authorize", "--hub", "hub", "--cap", "cap.cbor")
        self.show("cap-status", "cap", "status", "--hub", "hub", "--cap", "cap.cbor")
        self.show("send.cap", "send", *AT, *STREAM, "--body", "{}", "--cap", "cap.cbor")

    def _state(self) -> None:
        (self.folder / "me" / "state.json").unlink()
        self.show("resync", "resync", *AT, *STREAM)
        self.show("verify-state", "verify-state", *AT, *STREAM)
        self.show("id-show", "id", "show", "--client", "me")
        self.show("id-usage", "id", "usage", "--client", "me")
        self.show("id-rotate", "id", "rotate", "--client", "me")

    def _portable(self) -> None:
        self.show("export", "export", *AT, *STREAM, "--out", "set")
        self.show("import", "import", "set", "--into", "again")

    def _measure(self) -> None:
        stream = ("--stream", "core/bench")
        self.show("bench-send", "bench", "send", *AT, *stream, "--count", "20", "--size", "16")
        self.show("bench-read", "bench", "read", *AT, *stream, "--decrypt")
        self.show("hub-health", "hub", "health", "--hub", "hub")
        self.show("hub-metrics", "hub", "metrics", "--hub", "hub")

    def _checkpoints(self) -> None:
        self.show("hub-checkpoint", "hub", "checkpoint", "--hub", "hub", *STREAM, "--upto", "2")

    def _stopped(self) -> None:
        self.old_key = self._hub_pk()
        self.show("hub-stop", "hub", "stop", "--data-dir", "hub")
        self.show("hub-verify", "hub", "verify", "--data-dir", "hub")
        self.show("hub-rebuild", "hub", "rebuild", "--data-dir", "hub")
        self.show("hub-retention", "hub", "retention", "--data-dir", "hub")
        self.show("hub-rotate-key", "hub", "rotate-key", "--data-dir", "hub")

    def _secured(self) -> None:
        certificate(self.folder)
        self.do(
            "hub", "start", "--data-dir", "hub", "--listen", f"127.0.0.1:{self.port}", *OPEN,
            "--tls-cert", "cert.pem", "--tls-key", "key.pem",
        )  # fmt: skip
        at = ("--hub", "hub", "--ca", "cert.pem")
        unknown = veen("hub", "tls-info", "--hub", "hub", cwd=self.folder)
        assert (unknown.code, "certificate" in unknown.err) == (2, True)
        self.show("hub-tls-info", "hub", "tls-info", *at)
        self.do("hub", "checkpoint", *at, *STREAM, "--upto", "3", "--out", "cp.cbor")
        new_key = self._hub_pk("--ca", "cert.pem")
        self.show(
            "hub-verify-rotation", "hub", "verify-rotation", "--checkpoint", "cp.cbor",
            "--old-key", self.old_key, "--new-key", new_key,
        )  # fmt: skip

    def _words(self) -> None:
        self.show("version", "version")
        self.show("explain-error", "explain-error", "E.SEQ")
        self.show("explain-error.former", "explain-error", "E.DUP")

    def _self_tests(self) -> None:
        for suite, *steps in (
            ("core", "duplicate"), ("props", "range-proofs"), ("fuzz", "decode-receipt"),
            ("recorder", "principal"), ("query", "evidence-full"), ("bridge", "damaged"),
            ("all", "inclusion-proofs", "decode-msg"),
        ):  # fmt: skip
            only = [word for step in steps for word in ("--only", step)]
            self.show(f"selftest-{suite}", "selftest", suite, *only)

    def _recorder(self) -> None:
        show_recorder(self)

    def _bridge(self) -> None:
        show_bridge(self)

    def _zones(self) -> None:
        """As far as no process is started; tests/e2e/zone do that."""
        at = ("--directory", "zone")
        self.show("zone-init", "zone", "init", *at, "--name", "z1", "--role", "online")
        self.show("zone-status", "zone", "status", *at)
        self.show("zone-down", "zone", "down", *at)
        of = ("--config", "zone/veen.toml", "--out", "terms.json")
        self.show("audit-terms", "audit", "terms", *of)

    def _hub_pk(self, *more: str) -> str:
        document = json.loads(self.do("hub", "key", "--hub", "hub", "--json", *more).out)
        return str(document["hub_pk"])


def certificate(folder: Path) -> None:
    """cert.pem and key.pem, by its own word of this host, for a day."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a hub")])
    now = datetime.now(tz=UTC)
    result = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    (folder / "cert.pem").write_bytes(result.public_bytes(pem))
    (folder / "key.pem").write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )


def forms(folder: Path, run: Veen = veen) -> Iterator[tuple[str, World]]:
    for name, form in (("text", ()), ("json", ("--json",))):
        (folder / name).mkdir()
        yield name, World(folder / name, *form, veen=run)
