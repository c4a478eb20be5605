"""Output without what chance, clock and place put into it; all else stays as it is."""

from __future__ import annotations

import re
from collections.abc import Callable

from veen.label import DEFAULT_PROFILE, stream_id

FIXED = {
    DEFAULT_PROFILE.profile_id().hex(),
    *(stream_id(name).hex() for name in ("core/main", "veen.json.v1", "veen.bytes.v1")),
}
"""Hashes that are the same everywhere, and must be."""

_TIMES = re.compile(r"\b1[789]\d{8}\b")
_ADDRESS = re.compile(r"127\.0\.0\.1:\d+")
_PROCESS = re.compile(r'^((?:stopped )?hub | "pid": |process )\d+', re.MULTILINE)
_MEASURED = re.compile(r'\b((?:seconds|per_sec|p\d\d_ms|max_ms)"?[:=] ?)\d+\.\d+\b')
_COUNTED = re.compile(
    r"\b((?:mean|p95_at_most|uptime_sec|age_sec|asked_seconds_ago|(?:veen_)?disk_free_bytes)"
    r'"?[:=] ?)\d+(?:\.\d+)?\b'
)
_HEADS = re.compile(r'^(   "head_seq": )\d+', re.MULTILINE)  # by label, so in a random order
_CAPS = re.compile(r"\b[0-9a-f]{8}(?=\.cap\b)")  # the beginning of a key
_RELEASED = re.compile(r"\breleased-[0-9a-f]{8}(?=-\d)")  # the beginning of a bundle_id
_AGES = re.compile(r"\b\d+(?= s ago\b)")
_VERSIONS = re.compile(r'("python": "|PyNaCl )\d+\.\d+\.\d+')
_MOMENTS = re.compile(r"\b20(?:2[6-9]|[3-9]\d)-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{3})?Z")
_BAGS = re.compile(r"\b[0-9a-f]{6}-[0-9a-f]{6}-(\d+)-[0-9a-f]{12}\b")  # hub, bridge, n, set
_SIX_WORDS = re.compile(r'\b([Ww]ords"?:? +"?|\\nWords +)[a-z]{5}(?: [a-z]{5}){5}\b')
_SIZED = {128: "64 bytes", 64: "32 bytes", 32: "16 bytes", 16: "8 bytes", 12: "6 bytes"}
_BEGINNING = r"(?:\b|(?<=\\n))"  # of a word, or of a line within JSON


def normalised(text: str, folder: str) -> str:
    """Equal bytes of one text get equal names in it."""
    text = text.replace(folder, "<folder>")
    text = _ADDRESS.sub("127.0.0.1:<port>", text)
    text = _BAGS.sub(r"<bag \1>", text)
    text = _SIX_WORDS.sub(r"\1<six words>", text)
    for digits, size in _SIZED.items():
        text = re.sub(rf"{_BEGINNING}[0-9a-f]{{{digits}}}\b", _naming(size), text)
    text = _PROCESS.sub(r"\1<pid>", text)
    for numbers in (_MEASURED, _COUNTED, _HEADS):
        text = numbers.sub(r"\1<number>", text)
    text = _CAPS.sub("<key>", text)
    text = _RELEASED.sub("released-<bundle>", text)
    text = _MOMENTS.sub("<moment>", text)
    text = _AGES.sub("<number>", text)
    text = _VERSIONS.sub(r"\1<version>", text)
    return _TIMES.sub("<time>", text)


def _naming(size: str) -> Callable[[re.Match[str]], str]:
    names: dict[str, str] = {}

    def name(match: re.Match[str]) -> str:
        if match[0] in FIXED:
            return match[0]
        return names.setdefault(match[0], f"<{size} {len(names) + 1}>")

    return name
