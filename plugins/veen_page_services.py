"""Whether the services of a zone answer, asked side by side and never for long.

The zone that this Airflow runs for, as its page reads it.
"""

from __future__ import annotations

import contextlib
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from bridge import settings as bridge_settings
from bridge.importer.airlock import Airlock
from recorder import settings as recorder_settings
from veen.errors import VeenError
from zone import config as zones
from zone.config import ZoneConfig


class NoZone(VeenError):
    """The environment does not say which zone this is."""


class Unreadable(VeenError):
    """A part of the page of which nothing can be told, and why."""


@dataclass(frozen=True, slots=True)
class ZonePlace:
    """``bridge`` is None in a zone that is alone."""

    zone: ZoneConfig
    recorder: recorder_settings.RecorderSettings
    bridge: bridge_settings.BridgeSettings | None

    @property
    def folder(self) -> Path:
        return self.zone.folder

    def airlock(self) -> Airlock | None:
        """Where carriers come in; None where none do, or none came yet."""
        importing = self.bridge.importing if self.bridge else None
        result = Airlock(importing.state) if importing else None
        return result if result and result.ledger.exists() else None


def opened(environ: Mapping[str, str]) -> ZonePlace:
    """Read anew for every request: small files, and nothing is kept that could be old."""
    file = environ.get(zones.VARIABLE)
    if not file:
        raise NoZone(f"{zones.VARIABLE} is not set: name the veen.toml of this zone in it")
    zone = zones.load(Path(file))
    bridge = None if zone.role == zones.ALONE else bridge_settings.load(zone.file)
    return ZonePlace(zone, recorder_settings.load(zone.file), bridge)


@contextlib.contextmanager
def reading(what: str) -> Iterator[None]:
    """What cannot be read is told in its own part of the page, and the others are shown."""
    try:
        yield
    except OSError as error:
        raise Unreadable(f"{what} cannot be read: {error}") from error


T = TypeVar("T")
TIMEOUT_SEC: Final = 0.8
"""For a connection and for each part of an answer."""
_MOST_SEC: Final = 1.0
_MOST_BYTES: Final = 4096
_MOST_TEXT: Final = 300
_MOST_WARNINGS: Final = 5


@dataclass(frozen=True, slots=True)
class ServiceState:
    """``told`` is for people: what it says, or how it is silent; ``warnings`` what comes soon."""

    name: str
    url: str
    is_up: bool
    is_ready: bool
    detail: str
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Address:
    name: str
    url: str
    ca: Path | None


Look = Callable[[Address], ServiceState]


def hub_of(place: ZonePlace) -> Address:
    return Address("Hub", place.recorder.hub.url, place.recorder.hub.ca)


def addresses(place: ZonePlace) -> tuple[Address, ...]:
    query = place.recorder.query
    scheme = "http" if query.tls_cert is None else "https"
    return (
        hub_of(place),
        Address("Recorder service", f"{scheme}://{query.listen}", query.tls_cert),
    )


def services(asked: tuple[Address, ...], look: Look) -> tuple[ServiceState, ...]:
    """One that is silent for too long is not waited for."""
    pool = ThreadPoolExecutor(max_workers=len(asked))
    futures = [pool.submit(look, address) for address in asked]
    wait(futures, timeout=_MOST_SEC)
    pool.shutdown(wait=False, cancel_futures=True)
    return tuple(
        future.result() if future.done() else _down(address, f"no answer within {_MOST_SEC:.0f} s")
        for future, address in zip(futures, asked, strict=True)
    )


class PendingRequest(Generic[T]):
    """A question that is under way beside others; no answer in time is None."""

    def __init__(self, question: Callable[[], T | None]) -> None:
        self._pool = ThreadPoolExecutor(max_workers=1)
        self._future = self._pool.submit(question)

    def answer(self) -> T | None:
        wait([self._future], timeout=_MOST_SEC)
        self._pool.shutdown(wait=False, cancel_futures=True)
        return self._future.result() if self._future.done() else None


def look(address: Address) -> ServiceState:
    """Ask a service whether it is ready; its words are shown, never believed."""
    try:
        with ask(address, "/readyz", {"Accept": "application/json"}) as reply:
            warnings = _warnings(reply.read1(_MOST_BYTES))
        return ServiceState(address.name, address.url, True, True, "ready", warnings)
    except urllib.error.HTTPError as error:
        detail = _message(error.read1(_MOST_BYTES)) or f"HTTP {error.code}"
        return ServiceState(address.name, address.url, True, False, f"up, but not ready: {detail}")
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


def _down(address: Address, why: str) -> ServiceState:
    return ServiceState(address.name, address.url, False, False, f"down: {why}")


def _message(body: bytes) -> str:
    """What a refusal says; hub and recorder service have two forms of it."""
    try:
        document = json.loads(body)
    except ValueError:
        return ""
    texts = (
        [document.get(key) for key in ("message", "reason", "detail", "code")]
        if _is(document)
        else []
    )
    return next((text[:_MOST_TEXT] for text in texts if isinstance(text, str) and text), "")


def _warnings(body: bytes) -> tuple[str, ...]:
    """What a service that is ready warns of; an answer that cannot be read warns of nothing."""
    try:
        document = json.loads(body)
    except ValueError:
        return ()
    detail = document.get("warnings") if isinstance(document, dict) else None
    if not isinstance(detail, list):
        return ()
    return tuple(item[:_MOST_TEXT] for item in detail[:_MOST_WARNINGS] if isinstance(item, str))


def _is(value: object) -> bool:
    return isinstance(value, dict)


def _tls(ca: Path | None) -> ssl.SSLContext:
    """The name in a certificate is that of the outside; here the service is asked beside us."""
    result = ssl.create_default_context(cafile=ca)
    result.check_hostname = False
    return result
