"""The settings of a self-test's hub: gated, read by policy, as it should be run, but small."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from veen.digest import h
from veen.limits import Limits

PEOPLE: Final = {
    "admin": ("recorder_admin", '["*"]', '["record/infrastructure/*"]'),
    "producer": ("recorder_producer", "[]", '["record/*"]'),
    "recorder": ("query", '["record/*"]', '["record/query/*"]'),
}
"""Clients that the hub knows by their keys: the role of each, what it reads and what it writes."""


def text(
    issuer: bytes,
    limits: Limits,
    tokens: tuple[str, str],
    people: Mapping[str, bytes],
    epochs: Mapping[str, int],
) -> str:
    """``tokens`` are those of a reader and of a stranger, ``epochs`` the lengths for streams."""
    reader, stranger = tokens
    return f"""
workers = 1
issuers = ["{issuer.hex()}"]

[limits]
max_msg_bytes = {limits.max_msg_bytes}
max_body_bytes = {limits.max_body_bytes}
max_epoch_skew_sec = {limits.max_epoch_skew_sec}

[[principals]]
name = "reader"
role = "recorder_admin"
token_sha256 = "{h(reader.encode()).hex()}"
read = ["*"]

[[principals]]
name = "stranger"
role = "recorder_admin"
token_sha256 = "{h(stranger.encode()).hex()}"
read = ["elsewhere/*"]

{"".join(_person(name, key) for name, key in people.items())}
{"".join(_stream(name, epoch_sec) for name, epoch_sec in epochs.items())}"""


def _person(name: str, key: bytes) -> str:
    role, read, write = PEOPLE[name]
    return f"""
[[principals]]
name = "{name}"
role = "{role}"
public_key = "{key.hex()}"
read = {read}
write = {write}
"""


def _stream(name: str, epoch_sec: int) -> str:
    return f"""
[[streams]]
name = "{name}"
epoch_sec = {epoch_sec}
"""
