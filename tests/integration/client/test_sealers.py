"""Processes that seal beside a client: the same messages land, also when one of them dies."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import psutil  # type: ignore[import-untyped]
import pytest

from support.client import client_producer
from veen.client.sealer import TOGETHER

BODIES = [b"%d" % number for number in range(3 * TOGETHER)]


def test_what_others_seal_lands_in_order(
    open_client_hub: Any, open_client: Callable[..., Any], stream: str
) -> None:
    client = open_client(open_client_hub.url, sealers=1)
    list(client.send_many(stream, BODIES))
    log = client_producer.log_of(open_client_hub.client(), stream)
    assert client_producer.bodies_of(log, client) == BODIES
    assert len(_processes()) == 1


def test_none_is_started_for_a_few_events(
    open_client_hub: Any, open_client: Callable[..., Any], stream: str
) -> None:
    client = open_client(open_client_hub.url, sealers=1)
    list(client.send_many(stream, BODIES[: TOGETHER - 1]))
    assert _processes() == []


def test_goes_on_alone_when_one_was_killed(
    open_client_hub: Any,
    open_client: Callable[..., Any],
    stream: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    client = open_client(open_client_hub.url, sealers=1)
    list(client.send_many(stream, BODIES))
    (sealer,) = _processes()
    sealer.kill()
    with caplog.at_level(logging.WARNING):
        list(client.send_many(stream, BODIES))
    assert "sealed by this process from now on" in caplog.text
    assert (
        client_producer.bodies_of(client_producer.log_of(open_client_hub.client(), stream), client)
        == BODIES * 2
    )


def test_they_end_with_the_client(
    open_client_hub: Any, open_client: Callable[..., Any], stream: str
) -> None:
    client = open_client(open_client_hub.url, sealers=1)
    list(client.send_many(stream, BODIES))
    client.close()
    assert _processes() == []


def _processes() -> list[psutil.Process]:
    return [
        child
        for child in psutil.Process().children()
        if "veen.system.process_pool.serve" in " ".join(child.cmdline())
    ]
