"""The zone of this Airflow, and the health of its services, probed in parallel with a timeout."""

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
from bridge.importer.directory import ImportDirectory
from recorder import settings as recorder_settings
from veen.errors import VeenError
from zone import config as zones
from zone.config import ZoneConfig

T = TypeVar("T")
TIMEOUT_SEC: Final = 0.8
"""The timeout of a connection, and of each read."""
_MOST_SEC: Final = 1.0
_MOST_BYTES: Final = 4096
_MOST_TEXT: Final = 300
_MOST_WARNINGS: Final = 5


class PageZoneUnset(VeenError):
    """The environment names no zone."""


class Unreadable(VeenError):
    """A section of the page that is not available, and why."""


@dataclass(frozen=True, slots=True)
class ZonePlace:
    """The settings of the zone; ``bridge`` is None in a zone without a bridge."""

    zone: ZoneConfig
    recorder: recorder_settings.RecorderSettings
    bridge: bridge_settings.BridgeSettings | None

    @property
    def folder(self) -> Path:
        return self.zone.folder

    def import_dir(self) -> ImportDirectory | None:
        """The import directory; None if the zone does not import, or has not yet."""
        importing = self.bridge.importing if self.bridge else None
        import_dir = ImportDirectory(importing.state) if importing else None
        return import_dir if import_dir and import_dir.ledger.exists() else None


def opened(environ: Mapping[str, str]) -> ZonePlace:
    """Read the settings for every request: the files are small, and a cache could be outdated."""
    file = environ.get(zones.VARIABLE)
    if not file:
        raise PageZoneUnset(f"{zones.VARIABLE} is not set: name the veen.toml of this zone in it")
    zone = zones.load(Path(file))
    bridge = None if zone.role == zones.ALONE else bridge_settings.load(zone.file)
    return ZonePlace(zone, recorder_settings.load(zone.file), bridge)


@contextlib.contextmanager
def reading(what: str) -> Iterator[None]:
    """Translate errors of reading into an error of this section; the others are shown."""
    try:
        yield
    except OSError as error:
        raise Unreadable(f"{what} cannot be read: {error}") from error


@dataclass(frozen=True, slots=True)
class ServiceState:
    """The health of a service. ``detail`` is for people: its answer, or why there is none;
    ``warnings`` are what it warns of."""

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
    """Probe services in parallel, each with a timeout."""
    pool = ThreadPoolExecutor(max_workers=len(asked))
    futures = [pool.submit(look, address) for address in asked]
    wait(futures, timeout=_MOST_SEC)
    pool.shutdown(wait=False, cancel_futures=True)
    return tuple(
        future.result() if future.done() else _down(address, f"no answer within {_MOST_SEC:.0f} s")
        for future, address in zip(futures, asked, strict=True)
    )


class PendingRequest(Generic[T]):
    """A probe in a thread; None if it has no answer in time."""

    def __init__(self, question: Callable[[], T | None]) -> None:
        self._pool = ThreadPoolExecutor(max_workers=1)
        self._future = self._pool.submit(question)

    def answer(self) -> T | None:
        wait([self._future], timeout=_MOST_SEC)
        self._pool.shutdown(wait=False, cancel_futures=True)
        return self._future.result() if self._future.done() else None


def look(address: Address) -> ServiceState:
    """Probe the readiness of a service; its text is shown, and not trusted."""
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
    """The response to a request, to be closed; proxies of the environment are not used."""
    handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({}), _NoRedirect()]
    if address.url.startswith("https:"):
        handlers.append(urllib.request.HTTPSHandler(context=_tls(address.ca)))
    request = urllib.request.Request(  # noqa: S310 - an address of the zone's file
        f"{address.url}{path}", headers=dict(headers)
    )
    return urllib.request.build_opener(*handlers).open(request, timeout=TIMEOUT_SEC)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Treats a redirect as an error: signed headers are sent to the service only."""

    def redirect_request(self, *_given: Any) -> None:
        return None


def _down(address: Address, why: str) -> ServiceState:
    return ServiceState(address.name, address.url, False, False, f"down: {why}")


def _message(body: bytes) -> str:
    """The message of an error response, of the hub's or of the recorder service's form."""
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
    """The warnings of a ready service; none if the answer cannot be read."""
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
    """A TLS context without host name check: the certificate has the external name."""
    context = ssl.create_default_context(cafile=ca)
    context.check_hostname = False
    return context
