"""The identity of a hub, its keys, and the manifest that binds its checkpoints (spec 8.4)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from hub.fsck.check import Check, first_difference
from hub.fsck.report import Findings
from hub.storage.datadir import DataDir
from veen import cbor, layout, sign
from veen.errors import Malformed, Untrusted, VeenError
from veen.hub_identity import CheckpointBinding, HubIdentity, HubKey, key_id
from veen.label import hub_id

Documents = dict[str, bytes]
_NAMES: Final = (layout.IDENTITY, layout.IDENTITY_SIG, layout.KEY_MAP)
_JOURNAL: Final = "hub-identity.next"


class Nameless(VeenError):
    """Nothing in the directory says whose it is."""


def read_hub(datadir: DataDir, findings: Findings) -> HubIdentity:
    """The identity by which to check signatures, as well as the documents allow."""
    documents = _documents(datadir, findings)
    identity = _identity(documents, findings)
    mapped = _key_map(documents, findings, identity)
    if identity is None and mapped is None:
        raise Nameless(
            f"{datadir.root} has no readable {layout.IDENTITY} nor {layout.KEY_MAP}: "
            "restore one of them; no signature can be checked without it"
        )
    if identity is None or not _is_signed(documents, findings, identity):
        known = mapped or [key.hub_pk for key in (identity.hub_keys if identity else ())]
        findings.note("signatures were checked against the bare keys, not the times they held")
        identity = _undated(known)
    _private_keys(datadir, findings, identity)
    return identity


def _documents(datadir: DataDir, findings: Findings) -> Documents:
    """The documents as they lie, or as a change that a crash interrupted will leave them."""
    try:
        pending = cbor.decode(datadir.file(_JOURNAL).read_bytes())
    except FileNotFoundError:
        pending = None
    except Malformed as error:
        findings.fault(_JOURNAL, 0, None, str(error), "IDENTITY")
        pending = None
    if pending is not None:
        findings.note(f"{_JOURNAL}: a change of identity that the next start will finish")
        return dict(zip(_NAMES, pending, strict=True))
    found = {name: datadir.file(name) for name in _NAMES}
    for name, path in found.items():
        if not path.is_file():
            findings.fault(name, 0, None, "the file is missing", "MISSING")
    return {name: path.read_bytes() for name, path in found.items() if path.is_file()}


def _identity(documents: Documents, findings: Findings) -> HubIdentity | None:
    if layout.IDENTITY not in documents:
        return None
    try:
        return HubIdentity.decode(documents[layout.IDENTITY])
    except Malformed as error:
        findings.fault(layout.IDENTITY, 0, None, str(error), "IDENTITY")
        return None


def _key_map(
    documents: Documents, findings: Findings, identity: HubIdentity | None
) -> list[bytes] | None:
    """The public keys of the map, if each has the key_id it stands under."""
    raw = documents.get(layout.KEY_MAP)
    if raw is None:
        return None
    keys = _mapped(raw)
    if keys is None or (identity and keys != [key.hub_pk for key in identity.hub_keys]):
        due = [[key.key_id, key.hub_pk] for key in identity.hub_keys] if identity else []
        at = first_difference(raw, cbor.dump(due)) if identity else 0
        findings.fault(layout.KEY_MAP, at, None, "is not the map of the hub's keys", "IDENTITY")
    return keys


def _mapped(raw: bytes) -> list[bytes] | None:
    try:
        pairs = [(bytes(name), bytes(public)) for name, public in cbor.decode(raw)]
    except (Malformed, TypeError, ValueError):
        return None
    whole = bool(pairs) and all(name == key_id(public) for name, public in pairs)
    return [public for _, public in pairs] if whole else None


def _is_signed(documents: Documents, findings: Findings, identity: HubIdentity) -> bool:
    signature = documents.get(layout.IDENTITY_SIG)
    if signature is None:
        return False
    try:
        identity.verify(signature)
    except Untrusted as error:
        what = f"{error} ({layout.IDENTITY} or its signature was changed)"
        findings.fault(layout.IDENTITY_SIG, 0, None, what, "IDENTITY")
    else:
        return True
    return False


def _undated(keys: Iterable[bytes]) -> HubIdentity:
    found = tuple(HubKey(key_id=key_id(one), hub_pk=one, valid_from=0) for one in keys)
    return HubIdentity(hub_id=hub_id(found[0].hub_pk), hub_keys=found, anchoring="key-map")


def _private_keys(datadir: DataDir, findings: Findings, hub: HubIdentity) -> None:
    due = {f"hub-{key.key_id.hex()}.key": key for key in hub.hub_keys}
    for path in sorted(datadir.keys.iterdir()):
        name = f"keys/{path.name}"
        if path.name not in due:
            findings.note(f"{name}: not a key of this hub")
        elif not _is_key(path.read_bytes(), due[path.name].hub_pk):
            findings.fault(name, 0, None, "is not the private key of its name", "KEY")
    if not (datadir.keys / f"hub-{hub.current.key_id.hex()}.key").exists():
        name = f"keys/hub-{hub.current.key_id.hex()}.key"
        findings.note(f"{name}: the current private key is not here; the hub cannot go on")


def _is_key(seed: bytes, public: bytes) -> bool:
    return len(seed) == 32 and sign.PrivateKey(seed).public == public


def check_bindings(check: Check) -> None:
    """Every line names a checkpoint that is here, and every checkpoint has its line."""
    raw = check.read(layout.CHECKPOINT_BINDING) or b""
    begin = b"\xa7\x01\x01\x02\x58\x20" + check.hub.hub_id
    missing = {place for place, lines in check.bindings.items() if lines}
    bad: list[tuple[int, bytes]] = []
    at = 0
    while at < len(raw):
        end = _line_end(raw, at)
        place = _place(raw[at:end], check) if end else None
        if place is None:
            following = raw.find(begin, at + 1)
            end = following if following >= 0 else len(raw)
            bad.append((at, raw[at:end]))
        else:
            missing.discard(place)
        at = end or len(raw)
    _report_lines(check, bad, missing, len(raw))


def _line_end(raw: bytes, at: int) -> int | None:
    try:
        return cbor.skip(raw, at)
    except Malformed:
        return None


def _place(line: bytes, check: Check) -> tuple[bytes, int] | None:
    """The checkpoint a line is rightly for."""
    try:
        found = CheckpointBinding.decode(line)
    except Malformed:
        return None
    lines = check.bindings.get((found.label, found.upto_seq))
    return (found.label, found.upto_seq) if lines == () or line in (lines or ()) else None


def _report_lines(
    check: Check, bad: list[tuple[int, bytes]], missing: set[tuple[bytes, int]], size: int
) -> None:
    """Each bad line is held against the missing one it is most like."""
    for at, line in bad:
        near = [(first_difference(line, one), place) for place in missing
                for one in check.bindings[place] if line != one]  # fmt: skip
        where, place = max(near, default=(0, None))
        check.findings.fault(
            layout.CHECKPOINT_BINDING, at + where, None, "binds no checkpoint of this hub",
            "BINDING",
        )  # fmt: skip
        if place is not None:
            missing.discard(place)
    for label, upto in sorted(missing):
        what = f"no line for the checkpoint of label {label.hex()} at {upto}"
        check.findings.fault(layout.CHECKPOINT_BINDING, size, upto, what, "BINDING")
