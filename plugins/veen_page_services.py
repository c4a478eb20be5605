"""Whether the services of a zone answer, asked side by side and never for long."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from veen_page_zone import Place

T = TypeVar("T")
TIMEOUT_SEC: Final = 0.8
"""For a connection and for each part of an answer."""
_MOST_SEC: Final = 1.0
_MOST_BYTES: Final = 4096
_MOST_TEXT: Final = 300
_MOST_WARNINGS: Final = 5


@dataclass(frozen=True, slots=True)
class Service:
    """``told`` is for people: what it says, or how it is silent; ``warnings`` what comes soon."""

    name: str
    url: str
    is_up: bool
    is_ready: bool
    told: str
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Address:
    name: str
    url: str
    ca: Path | None


Look = Callable[[Address], Service]


def hub_of(place: Place) -> Address:
    return Address("Hub", place.recorder.hub.url, place.recorder.hub.ca)


def addresses(place: Place) -> tuple[Address, ...]:
    query = place.recorder.query
    scheme = "http" if query.tls_cert is None else "https"
    return (
        hub_of(place),
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


class Asked(Generic[T]):
    """A question that is under way beside others; no answer in time is None."""

    def __init__(self, question: Callable[[], T | None]) -> None:
        self._pool = ThreadPoolExecutor(max_workers=1)
        self._future = self._pool.submit(question)

    def answer(self) -> T | None:
        wait([self._future], timeout=_MOST_SEC)
        self._pool.shutdown(wait=False, cancel_futures=True)
        return self._future.result() if self._future.done() else None


def look(address: Address) -> Service:
    """Ask a service whether it is ready; its words are shown, never believed."""
    try:
        with ask(address, "/readyz", {"Accept": "application/json"}) as reply:
            warnings = _warnings(reply.read1(_MOST_BYTES))
        return Service(address.name, address.url, True, True, "ready", warnings)
    except urllib.error.HTTPError as error:
        told = _message(error.read1(_MOST_BYTES)) or f"HTTP {error.code}"
        return Service(address.name, address.url, True, False, f"up, but not ready: {told}")
    except (OSError, ValueError) as error:
        return _down(address, str(getattr(error, "reason", error)) or type(error).__name__)


def ask(address: Address, path: str, headers: Mapping[str, str]) -> Any:
    """The answer to one question, to be closed; nothing stands between, whatever the environment
    says."""
    handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({}), _NoRedirect()]
    if address.url.startswith("https:"):
        handlers.append(urllib.request.HTTPSHandler(context=_tls(address.ca)))
    request = urllib.request.Request(  # noqa: S310 - an address of the zone's file
        f"{address.url}{path}", headers=dict(headers)
    )
    return urllib.request.build_opener(*handlers).open(request, timeout=TIMEOUT_SEC)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """What was signed for a service of the zone goes nowhere else."""

    def redirect_request(self, *_given: Any) -> None:
        return None


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
    return next((text[:_MOST_TEXT] for text in texts if isinstance(text, str) and text), "")


def _warnings(body: bytes) -> tuple[str, ...]:
    """What a service that is ready warns of; an answer that cannot be read warns of nothing."""
    try:
        found = json.loads(body)
    except ValueError:
        return ()
    told = found.get("warnings") if isinstance(found, dict) else None
    if not isinstance(told, list):
        return ()
    return tuple(one[:_MOST_TEXT] for one in told[:_MOST_WARNINGS] if isinstance(one, str))


def _is(found: object) -> bool:
    return isinstance(found, dict)


def _tls(ca: Path | None) -> ssl.SSLContext:
    """The name in a certificate is that of the outside; here the service is asked beside us."""
    found = ssl.create_default_context(cafile=ca)
    found.check_hostname = False
    return found
