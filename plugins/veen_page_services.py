"""Whether the services of a zone answer, asked side by side and never for long."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from veen_page_zone import Place

TIMEOUT_SEC: Final = 0.8
"""For a connection and for each part of an answer."""
_MOST_SEC: Final = 1.0
_MOST_BYTES: Final = 4096


@dataclass(frozen=True, slots=True)
class Service:
    """``told`` is for people: what it says, or how it is silent."""

    name: str
    url: str
    is_up: bool
    is_ready: bool
    told: str


@dataclass(frozen=True, slots=True)
class Address:
    name: str
    url: str
    ca: Path | None


Look = Callable[[Address], Service]


def addresses(place: Place) -> tuple[Address, ...]:
    hub, query = place.recorder.hub, place.recorder.query
    scheme = "http" if query.tls_cert is None else "https"
    return (
        Address("Hub", hub.url, hub.ca),
        Address("Recorder service", f"{scheme}://{query.listen}", query.tls_cert),
    )


def services(asked: tuple[Address, ...], look: Look) -> tuple[Service, ...]:
    """One that is silent for too long is not waited for."""
    pool = ThreadPoolExecutor(max_workers=len(asked))
    futures = [pool.submit(look, one) for one in asked]
    wait(futures, timeout=_MOST_SEC)
    pool.shutdown(wait=False, cancel_futures=True)
    return tuple(
        future.result() if future.done() else _down(one, f"no answer within {_MOST_SEC:.0f} s")
        for future, one in zip(futures, asked, strict=True)
    )


def look(address: Address) -> Service:
    """Ask a service whether it is ready; its words are shown, never believed."""
    handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
    if address.url.startswith("https:"):
        handlers.append(urllib.request.HTTPSHandler(context=_tls(address.ca)))
    opener = urllib.request.build_opener(*handlers)
    request = urllib.request.Request(  # noqa: S310 - an address of the zone's file
        f"{address.url}/readyz", headers={"Accept": "application/json"}
    )
    try:
        with opener.open(request, timeout=TIMEOUT_SEC):
            return Service(address.name, address.url, True, True, "ready")
    except urllib.error.HTTPError as error:
        told = _message(error.read1(_MOST_BYTES)) or f"HTTP {error.code}"
        return Service(address.name, address.url, True, False, f"up, but not ready: {told}")
    except (OSError, ValueError) as error:
        return _down(address, str(getattr(error, "reason", error)) or type(error).__name__)


def _down(address: Address, why: str) -> Service:
    return Service(address.name, address.url, False, False, f"down: {why}")


def _message(body: bytes) -> str:
    """What a refusal says; hub and recorder service have two forms of it."""
    try:
        found = json.loads(body)
    except ValueError:
        return ""
    texts = (
        [found.get(key) for key in ("message", "reason", "detail", "code")] if _is(found) else []
    )
    return next((text[:300] for text in texts if isinstance(text, str) and text), "")


def _is(found: object) -> bool:
    return isinstance(found, dict)


def _tls(ca: Path | None) -> ssl.SSLContext:
    """The name in a certificate is that of the outside; here the service is asked beside us."""
    found = ssl.create_default_context(cafile=ca)
    found.check_hostname = False
    return found
