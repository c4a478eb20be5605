"""What a case looks like, and how a known literal is held against its formula."""

from __future__ import annotations

from typing import Any

Case = dict[str, Any]


class Disagreement(Exception):
    """A literal is not what the formula gives."""


def known(computed: bytes, literal: str) -> bytes:
    if computed != bytes.fromhex(literal):
        raise Disagreement(f"{computed.hex()} is computed, {literal} is known")
    return computed


def reference(name: str, **fields: Any) -> Case:
    """A case of which the public Rust implementation of VEEN has the values or the inputs."""
    return {"name": name, "origin": "reference", **fields}


def own(name: str, **fields: Any) -> Case:
    return {"name": name, "origin": "specification", **fields}
