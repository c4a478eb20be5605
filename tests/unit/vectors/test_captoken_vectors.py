"""Capability tokens of veen.json against the library."""

from __future__ import annotations

from operator import itemgetter
from typing import Any

import pytest

from support.vectors import load_vectors
from veen.captoken import CapToken, Rate, issue
from veen.crypto import SigningKey
from veen.errors import Malformed, Untrusted

CASES = load_vectors("veen.json")
NAME = itemgetter("name")
TOKENS = pytest.mark.parametrize("case", CASES["capabilities"], ids=NAME)


def minted(case: dict[str, Any]) -> CapToken:
    """The token of a case, from its inputs alone."""
    issuer = SigningKey(bytes.fromhex(case["issuer_seed"]))
    token = issue(
        issuer,
        subject_pk=bytes.fromhex(case["subject_pk"]),
        stream_ids=[bytes.fromhex(stream) for stream in case["stream_ids"]],
        ttl=case["ttl"],
        rate=Rate(per_sec=case["per_sec"], burst=case["burst"]),
    )
    for _ in case["sig_chain"][1:]:
        token = token.resigned(issuer)
    return token


@TOKENS
def test_mints_the_same_bytes(case: dict[str, Any]) -> None:
    assert minted(case).encode().hex() == case["cbor"]


@TOKENS
def test_signatures_of_the_chain(case: dict[str, Any], revived: Any) -> None:
    assert minted(case).sig_chain == revived(case["sig_chain"])


@TOKENS
def test_decodes_from_its_bytes(case: dict[str, Any]) -> None:
    assert CapToken.decode(bytes.fromhex(case["cbor"])) == minted(case)


@TOKENS
def test_auth_ref(case: dict[str, Any]) -> None:
    assert CapToken.decode(bytes.fromhex(case["cbor"])).auth_ref().hex() == case["auth_ref"]


@TOKENS
def test_each_link_signs_the_one_before(case: dict[str, Any], revived: Any) -> None:
    token = CapToken.decode(bytes.fromhex(case["cbor"]))
    before = (bytes(64), *revived(case["sig_chain"]))[:-1]
    assert tuple(token.link_digest(link) for link in before) == revived(case["link_digests"])


@TOKENS
def test_chain_holds(case: dict[str, Any]) -> None:
    CapToken.decode(bytes.fromhex(case["cbor"])).verify_chain()


@TOKENS
def test_cut_short_anywhere_is_refused(case: dict[str, Any]) -> None:
    raw = bytes.fromhex(case["cbor"])
    for size in range(len(raw)):
        with pytest.raises(Malformed):
            CapToken.decode(raw[:size])


@pytest.mark.parametrize("case", CASES["untrusted_capabilities"], ids=NAME)
def test_names_the_link_that_does_not_hold(case: dict[str, Any]) -> None:
    token = CapToken.decode(bytes.fromhex(case["raw"]))
    with pytest.raises(Untrusted, match=f"link {case['link']} "):
        token.verify_chain()
