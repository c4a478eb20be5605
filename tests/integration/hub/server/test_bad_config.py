"""A configuration that cannot be meant is refused by name, before anything is served."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

KEY = "11" * 32
PRINCIPAL = """
[[principals]]
name = "{name}"
role = "{role}"
public_key = "{key}"
{grants}
"""


def _principal(name: str, role: str, grants: str = "", key: str = KEY) -> str:
    return PRINCIPAL.format(name=name, role=role, grants=grants, key=key)


@pytest.mark.parametrize(
    ("toml", "named"),
    [
        pytest.param("admision = 'open'", ["'admision'"], id="unknown key"),
        pytest.param("[limits]\nmax_mesg = 1", ["'max_mesg'"], id="unknown limit"),
        pytest.param(
            "[limits]\nmax_msg_bytes = 1048577", ["max_msg_bytes"], id="limit above the maximum"
        ),
        pytest.param("admission = 'ajar'", ["admission", "'ajar'"], id="unknown mode"),
        pytest.param("workers = 0", ["worker"], id="no workers"),
        pytest.param("workers = 'two'", ["workers", "'two'"], id="wrong type"),
        pytest.param("issuers = ['ab']", ["issuers", "'ab'"], id="short key"),
        pytest.param("tls_cert = 'cert.pem'", ["tls_key"], id="certificate without key"),
        pytest.param("listen = [", ["hub.toml"], id="no toml"),
        pytest.param(
            _principal("gate", "bridge_online", "write = ['export/x']"),
            ["gate", "bridge_online", "write", "'export/x'"],
            id="bridge_online that writes",
        ),
        pytest.param(
            _principal("gate", "bridge_offline", "read = ['import/*']"),
            ["gate", "bridge_offline", "read", "'import/*'"],
            id="bridge_offline that reads",
        ),
        pytest.param(
            _principal("gate", "bridge_online", "read = ['*']"),
            ["gate", "'*'"],
            id="a pattern wider than its role",
        ),
        pytest.param(
            _principal("one", "recorder_producer") + _principal("two", "bridge_offline"),
            ["one", "two", "public_key"],
            id="two principals share a key",
        ),
        pytest.param(_principal("one", "emperor"), ["one", "role"], id="unknown role"),
        pytest.param(
            _principal("one", "query", "reed = []"), ["one", "'reed'"], id="unknown grant"
        ),
    ],
)
def test_refuses_to_start(
    toml: str, named: list[str], make_hub: Callable[..., Any], run_veen: Callable[..., Any]
) -> None:
    hub = make_hub(toml=toml)
    done = run_veen("hub", "start", *hub.arguments)
    assert done.returncode != 0
    assert [item for item in named if item not in done.stderr] == []
    assert "Traceback" not in done.stderr
    assert not (hub.data / "hub-identity.cbor").exists()


def test_refuses_a_missing_config_file(
    make_hub: Callable[..., Any], run_veen: Callable[..., Any]
) -> None:
    hub = make_hub("--config", "nowhere.toml")
    done = run_veen("hub", "start", *hub.arguments)
    assert done.returncode != 0
    assert "nowhere.toml" in done.stderr


@pytest.mark.parametrize(
    "options",
    [("--issuer", "xyz"), ("--listen", "nonsense"), ("--listen", "127.0.0.1:0")],
    ids=["issuer", "listen", "any port"],
)
def test_refuses_a_bad_option_in_one_line(
    options: tuple[str, str], make_hub: Callable[..., Any], run_veen: Callable[..., Any]
) -> None:
    hub = make_hub(*options)
    done = run_veen("hub", "start", "--data-dir", hub.data, *options)
    assert done.returncode != 0
    assert options[1] in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("mode", [(), ("--foreground",)], ids=["background", "foreground"])
def test_names_a_certificate_that_is_not_there(
    mode: tuple[str, ...], make_hub: Callable[..., Any], run_veen: Callable[..., Any]
) -> None:
    hub = make_hub("--tls-cert", "/nowhere/cert.pem", "--tls-key", "/nowhere/key.pem")
    done = run_veen("hub", "start", *hub.arguments, *mode)
    assert done.returncode != 0
    assert "/nowhere/cert.pem" in done.stderr
