"""The one file of a zone, ``veen.toml``: which table is whose, and what is said only once."""

from __future__ import annotations

from typing import Any, Final

from veen.settings_table import BadSettings

VARIABLE: Final = "VEEN_ZONE"
"""The environment variable that names the ``veen.toml`` of a process's zone."""

PARTS: Final = ("hub", "recorder", "bridge", "storage", "spark", "airflow", "dags")
_OF_ALL: Final = ("zone", "hub_id", "hub_data")
# A file of a hub, a recorder or a bridge alone has none of these at its top.
_MARKS: Final = ("recorder", "storage", "spark", "airflow", "dags")


def is_zone(document: dict[str, Any]) -> bool:
    return any(mark in document for mark in _MARKS)


def refuse_unknown(document: dict[str, Any]) -> None:
    known = (*_OF_ALL, *PARTS)
    for key in sorted(set(document) - set(known)):
        raise BadSettings(f"{key} = {document[key]!r}: there is no such key; known are {known}")
    for key in PARTS:
        if type(document.get(key, {})) is not dict:
            raise BadSettings(f"{key} = {document[key]!r}: a table is due")


def hub_part(document: dict[str, Any]) -> dict[str, Any]:
    return _part(document, "hub")


def recorder_part(document: dict[str, Any]) -> dict[str, Any]:
    """What ``recorder.toml`` would say, but for [objects], which is [storage] here."""
    found = _part(document, "recorder")
    for key, place in (("zone", "zone, at the top"), ("objects", "[storage]")):
        if key in found:
            raise BadSettings(f"recorder.{key}: in the file of a zone this is {place}")
    query = _table(found, "query", "recorder")
    if "master" in document.get("spark", {}):
        query.setdefault("spark_master", document["spark"]["master"])
    if "airflow" in document:
        query.setdefault("airflow_url", airflow_url(document))
    hub = _hub_of(document, _table(found, "hub", "recorder"))
    return found | {"zone": document.get("zone"), "hub": hub, "query": query}


def bridge_part(document: dict[str, Any]) -> dict[str, Any]:
    found = _part(document, "bridge")
    found.setdefault("name", document.get("zone"))
    return found | {"hub": _hub_of(document, _table(found, "hub", "bridge"))}


def airflow_url(document: dict[str, Any]) -> str:
    listen = document.get("airflow", {}).get("listen", AIRFLOW_LISTEN)
    return f"http://{listen}"


AIRFLOW_LISTEN: Final = "127.0.0.1:8081"


def _part(document: dict[str, Any], name: str) -> dict[str, Any]:
    refuse_unknown(document)
    if name not in document:
        raise BadSettings(f"[{name}] is missing: this zone has no {name}")
    return dict(document[name])


def _table(part: dict[str, Any], key: str, name: str) -> dict[str, Any]:
    found = part.get(key, {})
    if type(found) is not dict:
        raise BadSettings(f"{name}.{key} = {found!r}: a table is due")
    return dict(found)


def _hub_of(document: dict[str, Any], table: dict[str, Any]) -> dict[str, Any]:
    """Where the hub is and who it is, as the zone says unless the part itself does."""
    if "url" not in table and "hub" in document:
        table["url"] = _hub_url(document["hub"])
    if "hub_id" not in table and "hub_id" in document:
        table["hub_id"] = document["hub_id"]
    return table


def _hub_url(hub: dict[str, Any]) -> str:
    host, _, port = str(hub.get("listen", "127.0.0.1:8080")).rpartition(":")
    scheme = "https" if "tls_cert" in hub else "http"
    return f"{scheme}://{'127.0.0.1' if host == '0.0.0.0' else host}:{port}"  # noqa: S104
