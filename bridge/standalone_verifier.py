"""Verify AGB0 carriers with Python, PyNaCl and this one file, which writes nothing.

    python standalone_verifier.py [--hub-identity FILE] TRUST PLACE [PLACE ...]

TRUST is a directory with hub-<hub_id>.cbor and .sig for each trusted hub, exporter-<name>.pub (hex)
for each exporter, and revoked-<hex>.txt for each hub or key trusted no more. FILE is a newer
identity of such a hub, its .sig beside it. A PLACE is a bag, or the root of a medium. The last line
is the verdict: "valid" (exit code 0), the code of the first fault (1), or "UNSUPPORTED" (3):
packed, sealed, or to be rebuilt from parity; then run veen bridge verify. Exit code 2: a wrong call
or trust store, or no PyNaCl. Compare this file's SHA-256 with docs/bridge-format.md.
"""

# fmt: off
import re
import struct
import sys
from argparse import ArgumentParser, RawTextHelpFormatter
from contextlib import contextmanager, suppress
from hashlib import sha256
from itertools import accumulate, chain, pairwise
from pathlib import Path
from typing import Any
from unicodedata import normalize

try:
    from nacl.bindings import crypto_aead_xchacha20poly1305_ietf_decrypt, crypto_sign_open
    from nacl.exceptions import BadSignatureError, CryptoError
except ImportError:
    sys.exit(sys.stderr.write(f"{__doc__}\nPyNaCl is missing: run pip install pynacl\n") and 2)

TAGS = ("LABEL.txt", "bag-info.txt", "bagit.txt", "carrier.cbor", "manifest-sha256.txt")
TAGMANIFEST, SIGNATURE, MIB, ZERO = "tagmanifest-sha256.txt", "carrier.sig", 1 << 20, bytes(32)
VOLUME, u64 = struct.Struct(">8s32sHHHQ32s"), struct.Struct(">Q").pack
U, T, B, B32, B64, REVOKED = "uint", "text", "bytes", 32, 64, r"revoked-[0-9a-f]{64}\.txt"
# Kinds: a tuple is an array of fields, a list many of one, a dict a map; {"?": kind} may be absent.
RECORDER = {1: U, 2: B32, 3: B32, 4: B32, 5: U, 6: B32, 7: [(B32, U, B32)], 8: [T],
            9: [(U, B32, B32, U, B32, U, B64, {"?": [B64]})], 10: B64}
HEADER = {1: U, 2: B32, 3: B32, 4: B32, 5: B32, 6: T, 7: U, 8: U, 9: U, 10: U, 11: RECORDER}
PROOF, SIG = {1: U, 2: U, 3: U, 4: U, 5: [B32], 6: [B32]}, {1: U, 2: B32, 3: B64}
EVENT = (B, {"?": (T, B32, T, U, U, T)}, B, {"?": B32})
MSG, RECEIPT = (U, B32, B32, B32, U, U, {"?": B32}, B32, B, B64), (U, B32, U, B32, B32, U, B64)
IDENTITY = {1: U, 2: B32, 3: [{1: B32, 2: B32, 3: U, 4: {"?": U}, 5: {"?": B64}}], 4: T}
LEDGER = {1: U, 2: B32, 3: [(U, B32, {"?": B32}, B32, T, U, U, B32, U)]}
CARRIER = {1: U, 2: T, 3: B32, 4: U, 5: U, 6: U, 7: U, 8: [(U, U, B32)], 9: {"?": (T, U)},
           10: {"?": (T, B32, B32)}, 11: {"?": LEDGER}}
PROFILE = bytes.fromhex("7b6d324dfa79bdc2928558b784ca937eae43f94534dbe8ad2693ae2033240be1")

class VerifierRefused(Exception): ...  # the first fault: its code, once known, and what was found
def need(fact: object, value: str, code: str = "") -> None:
    if not fact:
        raise VerifierRefused(code, value)
@contextmanager
def named(code: str) -> Any:  # the code of faults inside that have none of their own
    try:
        yield
    except (VerifierRefused, CryptoError, UnicodeDecodeError) as error:
        first, detail = error.args if isinstance(error, VerifierRefused) else ("", str(error))
        raise VerifierRefused(first or code, detail) from error
def h(*parts: bytes) -> bytes:
    return sha256(b"".join(parts)).digest()
def ht(tag: str, *parts: bytes) -> bytes:
    return h(tag.encode() + b"\0", *parts)
def is_signed(public: bytes, signature: bytes, digest: bytes) -> bool:
    with suppress(BadSignatureError):
        return crypto_sign_open(signature + digest, public) == digest
    return False
def head(raw: bytes, at: int, loose: bool = False) -> tuple[int, int, int]:  # of a CBOR item
    need(at < len(raw) and raw[at] & 31 < 28, f"cut short, reserved or indefinite at byte {at}")
    major, info = divmod(raw[at], 32)
    if info < 24:
        return major, info, at + 1
    end = at + 1 + (1 << info - 24)
    argument, least = int.from_bytes(raw[at + 1 : end], "big"), (24, 2**8, 2**16, 2**32)[info - 24]
    need(loose or (end <= len(raw) and major < 7 and argument >= least), f"head at byte {at}")
    return major, argument, end
def skip(raw: bytes, at: int, most: int) -> int:  # the end of an item, by lengths alone
    pending, limit = 1, min(len(raw), at + most)
    while pending:
        need(at < limit, f"cut short or too long at byte {at}")
        major, argument, at = head(raw, at, loose=True)
        at += argument if major in (2, 3) else 0
        pending += {4: argument, 5: 2 * argument, 6: 1}.get(major, 0) - 1
    need(at <= limit, "cut short or too long")
    return at
def item(raw: bytes, at: int, depth: int = 16) -> tuple[Any, int]:
    major, argument, end = head(raw, at)
    if major == 0 or (major == 7 and argument in (20, 21, 22)):
        return (False, True, None)[argument - 20] if major else argument, end
    need(major in (2, 3, 4, 5) and depth and end + argument <= len(raw), f"item at byte {at}")
    if major in (2, 3):
        text = raw[end : end + argument]
        return text if major == 2 else text.decode(), end + argument
    values, previous = [], b""
    for n in range(argument * (major - 3)):
        start, (value, end) = end, item(raw, end, depth - 1)
        if major == 5 and n % 2 == 0:
            need(type(value) is int and previous < raw[start:end], f"key at byte {start}")
            previous = raw[start:end]
        values.append(value)
    # What is absent is left out of a map and cut off at the end of an array.
    need(not values or (None not in values if major == 5 else values[-1] is not None), "null")
    return (values if major == 4 else dict(zip(values[::2], values[1::2], strict=True))), end
def shape(value: Any, kind: Any) -> None:
    if isinstance(kind, list | tuple):
        need(isinstance(value, list), "no array")
        kind = kind * len(value) if isinstance(kind, list) else kind
        value, kind = dict(enumerate(value)), dict(enumerate(kind))
    if not isinstance(kind, dict):
        need(type(value) is {U: int, T: str}.get(kind, bytes), f"no {kind}")
        need(kind in (U, T, B) or len(value) == kind, f"not {kind} bytes")
    elif "?" not in kind:
        need(isinstance(value, dict) and value.keys() <= kind.keys(), "fields")
        for key, due in kind.items():
            shape(value.get(key), due)
    elif value is not None:
        shape(value, kind["?"])
def read(raw: bytes, kind: Any) -> Any:
    value, end = item(raw, 0)
    shape(value, kind)
    need(end == len(raw), f"{len(raw) - end} bytes too many")
    return value
def encode(value: Any, major: int = 0) -> bytes:
    if isinstance(value, int):
        width = next((width for width in (1, 2, 4, 8) if 23 < value < 1 << 8 * width), 0)
        info, rest = (23 + width.bit_length(), value) if width else (value, 0)
        return bytes([major << 5 | info]) + rest.to_bytes(width, "big")
    if isinstance(value, list | dict):
        inside = value if isinstance(value, list) else chain(*value.items())
        return encode(len(value), 4 + isinstance(value, dict)) + b"".join(map(encode, inside))
    raw = value.encode() if isinstance(value, str) else value
    return b"\xf6" if raw is None else encode(len(raw), 2 + isinstance(value, str)) + raw
def stream_id(name: str) -> bytes:
    return bytes.fromhex(name) if re.fullmatch("[0-9a-fA-F]{64}", name) else h(name.encode())
def label_of(hub_id: bytes, stream: bytes, epoch: int) -> bytes:
    return ht("veen/label", ht("veen/routing_key", hub_id), stream, u64(epoch))
def check_recorder(doc: Any) -> None:  # what must hold, whoever signed it
    need(doc[1] == 1 and all(item[0] == 1 and item[7:] != [[]] for item in doc[9]), "version")
    ids = [stream_id(name) for name in doc[8]]
    need(ids == sorted(set(ids)) == [end[0] for end in doc[7]], "streams")
    need(doc[6] == ht("veen/log-root", encode(doc[7])), "log_root")
    need([end[1:] for end in doc[7] if end[1]] == [item[3:5] for item in doc[9]], "checkpoints")
    need(all(end[2] == ZERO for end in doc[7] if not end[1]), "an empty stream with a root")
def keys_at(hub: Any, time: int) -> list[bytes]:
    return [key[2] for key in hub[3] if key[3] <= time <= key.get(4, time)]
def verify_signer(value: Any, hub: Any, made: int, last: int) -> None:  # KEX0.1 in a rotation
    digest, sigs = ht("veen/sig", encode(value[:6])), list(chain(*value[7:]))
    able = [key for key in hub[3] if key[3] <= made and key.get(4, last) >= last]
    signer: Any = next((key for key in able[::-1] if is_signed(key[2], value[6], digest)), None)
    need(signer, "a stream's checkpoint")
    for old, new in pairwise(hub[3]):
        begin = max(last, signer[3]) - (signer[3] < new[3])
        if min(made, signer.get(4, made)) <= old.get(4, -1) and begin >= new[3]:
            have = [any(is_signed(key[2], sig, digest) for sig in sigs) for key in (old, new)]
            need(all(have), "witness_sigs of both keys")
def verify_recorder(doc: Any, hubs: dict[bytes, Any], hub_id: bytes, at: Any = (b"", 0)) -> Any:
    need(hub_id in hubs and doc[2] == hub_id, f"hub {hub_id.hex()}", "E.AUTH/HUB")
    hub = hubs[hub_id]
    need(doc[3] in [key[2] for key in hub[3]], f"hub key {doc[3].hex()}", "E.AUTH/HUB_KEY")
    with named("E.SIG/CHECKPOINT"):
        digest = ht("veen/recorder-checkpoint", encode(doc)[:-64], bytes(64))
        need(doc[3] in keys_at(hub, doc[5]) and is_signed(doc[3], doc[10], digest), "hub_sig")
        for stream, item in zip([end[0] for end in doc[7] if end[1]], doc[9], strict=True):
            labels = [label_of(hub_id, stream, n) for n in (item[5], item[5] - 1) if n >= 0]
            need(item[2] == labels[0] and item[1] in labels, "labels")
            verify_signer(item, hub, doc[5], at[1] if stream == at[0] else 0)
    return hub
def grown(peaks: list[bytes], size: int, height: int, subtree: bytes) -> tuple[Any, bytes]:
    while size >> height & 1:
        subtree, height, peaks = ht("veen/mmr-node", peaks[0], subtree), height + 1, peaks[1:]
    return [subtree, *peaks], ht("veen/mmr-root", subtree, *peaks) if peaks else subtree
def read_parts(raw: bytes) -> tuple[Any, list[bytes], Any]:
    need(raw[:1] == b"\x83", "no array of three")
    events_at = skip(raw, 1, MIB)
    header = read(raw[1:events_at], HEADER)
    check_recorder(header[11])
    need(header[1] == 1 and 1 <= header[7] <= header[8], "version or range")
    need(header[5] == stream_id(header[6]) and header[4] == header[11][4], "stream or profile")
    major, count, at = head(raw, events_at)
    need(major == 4, "no array of events")
    need(count == header[8] - header[7] + 1, f"{count} events", "E.SEQ/COUNT")
    need(count <= 1 << 26, f"{count} events", "E.SIZE/BUNDLE_SIZE")
    ends = list(accumulate(range(count), lambda at, _: skip(raw, at, MIB + 4096), initial=at))
    events, at = [raw[start:end] for start, end in pairwise(ends)], ends[-1]
    need(skip(raw, at, 8192) == len(raw), "bytes follow the proof")
    proof = read(raw[at:], PROOF)
    is_short = len(proof[5]) <= 64 and len(proof[6]) <= 128
    need(is_short and proof[1] == 1 and 1 <= proof[2] <= proof[3] + 1 <= proof[4] + 1, "proof")
    unnamed = encode({key: item for key, item in header.items() if key != 2})
    digest = ht("veen/agb0-bundle", unnamed, raw[events_at:])
    need(digest == header[2], "bundle_id is not the hash of the bundle", "E.SIG/BUNDLE_ID")
    return header, events, proof
def verify_bundle(raw: bytes, hubs: dict[bytes, Any]) -> Any:
    need(len(raw) <= 1 << 36, f"{len(raw)} bytes", "E.SIZE/BUNDLE_SIZE")
    with named("E.FORMAT/FRAMING"):
        header, events, proof = read_parts(raw)
    hub = verify_recorder(header[11], hubs, header[3], (header[5], header[10]))
    end: Any = next((item for item in header[11][7] if item[0] == header[5]), [b"", 0, b""])
    due = [header[7], header[8], end[1]]
    need(end[1] >= header[8] and [proof[n] for n in (2, 3, 4)] == due, "range", "E.SEQ/RANGE")
    need(header[10] <= header[11][5], "events later than their checkpoint", "E.SIG/CHECKPOINT")
    peaks, size, times, later = proof[5], header[7] - 1, [], list[VerifierRefused]()
    need(len(peaks) == size.bit_count(), "peaks before the events", "E.SEQ/PROOF")
    for event in events:
        leaf, root, hub_ts = examine(event, size + 1, label_of(hub[2], header[5], 0), hub, later)
        (peaks, result), size = grown(peaks, size, 0, leaf), size + 1
        need(result == root, f"event {size}", "E.SEQ/ROOT")
        times.append(hub_ts)
    need([times[0], times[-1]] == [header[9], header[10]], "hub times", "E.SEQ/RANGE")
    with named("E.SEQ/PROOF"):
        for subtree in proof[6]:
            need(size < end[1], "too many subtrees")
            height = min((end[1] - size).bit_length(), (size & -size).bit_length()) - 1
            (peaks, result), size = grown(peaks, size, height, subtree), size + (1 << height)
        need(size == end[1] and result == end[2], "no way to the checkpoint's root")
    for fault in sorted(later, key=lambda item: item.args[0] == "E.SIG/METADATA"):
        raise fault
    return header
def examine(raw: bytes, seq: int, label: bytes, hub: Any, later: list[VerifierRefused]) -> Any:
    where = f"event {seq}"
    with named("E.FORMAT/EVENT_FORMAT"):
        event = read(raw, EVENT)
        msg, receipt = read(event[0], MSG), read(event[2], RECEIPT)
        need(msg[0] == receipt[0] == 1, where)
    need(receipt[2] == seq and msg[2] == receipt[1] == label, where, "E.SEQ/PLACE")
    leaf = ht("veen/leaf", msg[2], msg[1], msg[7], msg[3], u64(msg[4]))
    need(h(msg[8]) == msg[7] and leaf == receipt[3], where, "E.SIG/LEAF")
    digest = ht("veen/sig", encode(receipt[:6]))
    if not any(is_signed(key, receipt[6], digest) for key in keys_at(hub, receipt[5])):
        later.append(VerifierRefused("E.SIG/RECEIPT_SIG", where))
    elif not is_signed(msg[3], msg[9], ht("veen/sig", encode(msg[:9]))):
        later.append(VerifierRefused("E.SIG/MSG_SIG", where))
    try:
        with named("E.SIG/METADATA"):
            check_metadata(event[1], event[3] if len(event) > 3 else None, msg, receipt)
    except VerifierRefused as fault:
        later.append(fault)
    return leaf, receipt[4], receipt[5]
def check_metadata(value: Any, key: bytes | None, msg: Any, receipt: Any) -> None:
    need(not value or (value[1] == msg[3] and value[4] == receipt[5]), "principal or hub time")
    if key is None:
        return
    text, (headed, size) = msg[8], struct.unpack(">II", msg[8][32:40].ljust(8, b"\0"))
    start, end = 40 + headed, 40 + headed + size
    need(msg[1] == PROFILE and len(text) >= 40, "profile or size")
    need(end <= len(text) and not any(text[end:]) and end - start >= 16, "frame of the ciphertext")
    aad = ht("veen/aad", msg[1], msg[2], msg[3], u64(msg[4]), u64(msg[5]), msg[6] or ZERO)
    nonce = ht("veen/nonce", msg[2], u64(msg[5]), msg[3], u64(msg[4]))[:24]
    body = crypto_aead_xchacha20poly1305_ietf_decrypt(text[start:end], aad, nonce, key)
    if value:
        names = ("event_time", 3), ("event_type", 2), ("subject_id", 0), ("principal_id", 1)
        before = b"\xa6" + encode({"origin": value[5], "payload": 0})[1:-1]
        after = encode({name: value[n] for name, n in names})[1:]
        is_around = body.startswith(before) and body.endswith(after)
        need(is_around and skip(body, len(before), MIB) == len(body) - len(after), "the body")
def is_file(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()
def read_file(path: Path) -> bytes:
    need(path.exists() or path.is_symlink(), f"{path} is missing", "E.SIZE/INCOMPLETE")
    need(is_file(path) and path.stat().st_size <= MIB, f"{path}: kind or size", "E.FORMAT/MEDIUM")
    return path.read_bytes()
def read_bag(root: Path) -> tuple[Any, bytes, bytes]:  # carrier.cbor, what is signed, signature
    need(root.is_dir() and not root.is_symlink(), f"{root} is no directory", "E.FORMAT/MEDIUM")
    signature = read_file(root / SIGNATURE)
    need(len(signature) >= 105, f"{root}: {SIGNATURE} was not finished", "E.SIZE/INCOMPLETE")
    tags, tagmanifest = [read_file(root / name) for name in TAGS], read_file(root / TAGMANIFEST)
    lines = [f"{h(raw).hex()}  {name}\n" for name, raw in zip(TAGS, tags, strict=True)]
    need("".join(lines).encode() == tagmanifest, f"{root}: tag files", "E.SIG/TAG_FILE")
    with named("E.FORMAT/CARRIER_FORMAT"):
        is_newer = re.match(rb"[\xa0-\xbf]\x01[\x02-\x1b]", tags[3])
        need(not is_newer, f"needs >= v{int.from_bytes(tags[3][2:3])}", "E.FORMAT/CARRIER_VERSION")
        doc = read(tags[3], CARRIER)
        need(doc[1] == doc.get(11, doc)[1] == 1, "another format", "E.FORMAT/CARRIER_VERSION")
        check_carrier(doc)
    listed(root)
    return doc, ht("veen/agb0-carrier", tagmanifest), signature
def listed(folder: Path) -> list[Path]:
    paths = sorted(folder.iterdir()) if folder.is_dir() and not folder.is_symlink() else []
    names = {normalize("NFC", normalize("NFC", path.name).casefold()) for path in paths}
    need(len(names) == len(paths) <= 1024, f"{folder}: too many or equal names", "E.FORMAT/MEDIUM")
    return paths
def check_carrier(doc: Any) -> None:
    data, sizes = doc[4], [item[1] - VOLUME.size for item in doc[8]]
    need(data >= 1 and len(sizes) == data + doc[5] <= 500 and (11 in doc) != (10 in doc), "volumes")
    need({item[0] for item in doc[8]} == set(range(1, doc[6] + 1)), "bags")
    due = [sizes[0]] * (data - 1) + [sizes[data - 1]] + [sizes[0]] * doc[5]
    need(sizes == due and 0 < due[data - 1] <= due[0] and sum(sizes[:data]) == doc[7], "sizes")
    tail = doc.get(11, {3: []})[3]
    need(10 in doc or 0 < len(tail) <= 64, "number of entries in the ledger")
    for entry in tail:
        is_first, is_empty = entry[1] == ZERO, entry[4:7] == ["", 0, 0]
        need(entry[0] and (entry[0] == 1) == is_first and is_empty == (entry[2] is None), "entry")
    for old, new in pairwise(tail):
        need(new[:2] == [old[0] + 1, ht("veen/agb0-ledger", encode(old))], "the ledger's chain")
def read_volumes(doc: Any, roots: list[Path]) -> bytes:
    here: list[list[Path]] = [[] for _ in doc[8]]  # by index, those of the right size
    for path in (path for root in roots for path in listed(root / "data") if is_file(path)):
        with path.open("rb") as file:
            magic, set_id, n, *_ = VOLUME.unpack(file.read(VOLUME.size).ljust(VOLUME.size, b"\0"))
        is_ours = magic + set_id == b"AGB0VOL\x01" + doc[3] and n < len(here)
        if is_ours and path.stat().st_size == doc[8][n][1]:
            here[n].append(path)
    need(sum(not paths for paths in here) <= doc[5], "volumes are missing", "E.SIZE/INCOMPLETE")
    raws = ((n, path.read_bytes()) for n, paths in enumerate(here) for path in paths)
    good = {n: raw[VOLUME.size :] for n, raw in raws if h(raw) == doc[8][n][2]}
    lost = [paths for n, paths in enumerate(here) if n not in good]
    need(len(lost) <= doc[5], "volumes lost", "E.SIG/VOLUME" if any(lost) else "E.SIZE/INCOMPLETE")
    is_plain = all(n in good for n in range(doc[4])) and not {9, 10} & doc.keys()
    need(is_plain, "packed, sealed, or to be rebuilt: run veen bridge verify", "UNSUPPORTED")
    return b"".join(good[n] for n in range(doc[4]))
def verify_carrier(roots: list[Path], hubs: dict[bytes, Any], exporters: dict[bytes, str]) -> Any:
    bags = [(root, *read_bag(root)) for root in roots]
    doc, signers = bags[0][1], set()
    bags = [bag for bag in bags if bag[1] == doc]
    for root, _, digest, raw in bags:
        with named("E.FORMAT/CARRIER_FORMAT"):
            sig = read(raw, SIG)
            need(sig[1] == 1, f"{root}: version")
        need(is_signed(sig[2], sig[3], digest), f"{root}: signature", "E.SIG/CARRIER_SIG")
        signers.add(sig[2])
    need(signers <= exporters.keys(), "signed by an unknown exporter", "E.AUTH/SIGNER")
    content, entry = read_volumes(doc, [bag[0] for bag in bags]), doc[11][3][-1]
    if entry[2] is None:
        with named("E.FORMAT/FRAMING"):
            checkpoint = read(content, RECORDER)
            check_recorder(checkpoint)
        verify_recorder(checkpoint, hubs, checkpoint[2])
        due = [None, checkpoint[2], "", 0, 0]
    else:
        header = verify_bundle(content, hubs)
        checkpoint, due = header[11], [header[n] for n in (2, 3, 6, 7, 8)]
    due += [h(encode(checkpoint)), checkpoint[5]]
    need(entry[2:] == due, "the ledger enters something else", "E.SEQ/LEDGER")
    named_by = ", ".join(f"{exporters[signer]} ({signer.hex()})" for signer in sorted(signers))
    return facts(entry, named_by, len(hubs[entry[3]][3]))
def facts(entry: Any, signers: str, identity: int) -> list[str]:
    bits, c, v = struct.unpack(">6H", (entry[2] or entry[7])[:12]), "bdfghjklmnprstvz", "aiou"
    words = [c[n >> 12] + v[n >> 10 & 3] + c[n >> 6 & 15] + v[n >> 4 & 3] + c[n & 15] for n in bits]
    what = f"stream: {entry[4]}, events {entry[5]} to {entry[6]}" if entry[2] else "heartbeat"
    proven = "all bytes; signatures of exporter, hub and clients; nothing in the range is missing,"
    return [what, f"hub: {entry[3].hex()}", f"identity of the hub: {identity}, the newest in TRUST",
            f"signer: {signers}", f"words: {' '.join(words)}",
            f"verified: {proven} changed or added, up to the checkpoint of hub time {entry[8]}",
            "not verified: other ranges, anything later, bodies that are not disclosed, any clock"]
def read_trust(folder: Path, newer: Path | None = None) -> tuple[Any, dict[bytes, str]]:
    files, exporters, hubs = sorted(folder.iterdir()), dict[bytes, str](), dict[bytes, Any]()
    bad = {bytes.fromhex(p.name[8:72]) for p in files if re.fullmatch(REVOKED, p.name)}
    for path in (*files, *([newer] if newer else [])):
        if path is newer or re.fullmatch(r"hub-[0-9a-f]{64}\.cbor", path.name):
            raw = path.read_bytes()
            hub, sig = read(raw, IDENTITY), path.with_suffix(".sig").read_bytes()
            keys, due = hub[3], ht("veen/hub-id", hub[3][0][2])
            need(hub[2] == due and (path is newer or path.stem == f"hub-{due.hex()}"), path.name)
            for n, (old, new) in enumerate(pairwise(keys), 1):
                digest = ht("veen/hub-key", hub[2], u64(n), new[2], u64(new[3]))
                need(is_signed(old[2], new.get(5, b""), digest), f"{path.name}: endorsement")
            need(is_signed(keys[-1][2], sig, ht("veen/hub-identity", raw)), f"{path.name}: sig")
            hub[3], held = [key for key in keys if key[2] not in bad], hubs.get(due, {3: []})[3]
            follows = held and [key[2] for key in held] == [key[2] for key in hub[3][: len(held)]]
            need(follows or path is not newer, f"{path.name}: no newer identity of a hub in TRUST")
            hubs |= {hub[2]: hub} if hub[3] and hub[2] not in bad else {}
        elif re.fullmatch(r"exporter-[a-z0-9.-]{1,40}\.pub", path.name):
            exporters[bytes.fromhex(path.read_text())] = path.name[9:-4]
    return hubs, {key: name for key, name in exporters.items() if key not in bad}
def carriers(places: list[Path]) -> list[list[Path]]:  # bags, put together by carrier
    result: dict[Any, list[Path]] = {}
    for place in places:
        folder = place / "agb0"
        bags = sorted(folder.glob("*/")) if folder.is_dir() and not folder.is_symlink() else [place]
        for bag in bags:
            try:
                result.setdefault(encode(read_bag(bag)[0]), []).append(bag)
            except (OSError, VerifierRefused):
                result[bag] = [bag]
    need(result, f"no bag lies in {places[0]}")
    return list(result.values())
def main(argv: list[str]) -> int:
    parser = ArgumentParser(description=__doc__, formatter_class=RawTextHelpFormatter)
    parser.add_argument("--hub-identity", dest="newer", metavar="FILE", type=Path)
    parser.add_argument("trust", metavar="TRUST", type=Path)
    parser.add_argument("places", metavar="PLACE", type=Path, nargs="+")
    given, codes = parser.parse_args(argv), list[str]()
    try:
        (hubs, exporters), sets = read_trust(given.trust, given.newer), carriers(given.places)
    except (IndexError, OSError, ValueError, VerifierRefused) as error:
        parser.error(ascii(f"a wrong call or trust store, no verdict: {error}"))
    for roots in sets:
        try:
            code, detail = "valid", verify_carrier(roots, hubs, exporters)
        except VerifierRefused as error:
            code, *detail = error.args
        except OSError as error:
            code, detail = "E.FORMAT/MEDIUM", [str(error)]
        codes.append(code)
        for line in (f"{code}: {', '.join(map(str, roots))}", *detail):
            sys.stdout.write(ascii(line)[1:-1] + "\n")
    code = min(codes, key=lambda item: {"valid": 2, "UNSUPPORTED": 1}.get(item, 0))
    sys.stdout.write(f"{codes.count('valid')} of {len(codes)} carriers are valid\n{code}\n")
    return {"valid": 0, "UNSUPPORTED": 3}.get(code, 1)
if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
