"""A hub's life by its commands: start, look, stop, start again."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
import pytest

from support.hub import hub_load, spec_objects

STREAM = "record/a"


@pytest.fixture
def hub(make_hub: Callable[..., Any]) -> Any:
    """Not started; its arguments are those of the command."""
    return make_hub("--admission", "open", "--reads", "open")


@pytest.fixture(scope="module")
def started(make_shared_hub: Callable[..., Any], run_veen: Callable[..., Any]) -> Any:
    """Started in the background, as an operator does."""
    hub = make_shared_hub("--admission", "open", "--reads", "open")
    done = run_veen("hub", "start", *hub.arguments)
    assert done.returncode == 0, done.stderr
    hub.start_output = done
    return hub


def _pid(hub: Any) -> int:
    return int((hub.data / "run" / "hub.pid").read_text())


def test_a_background_start_says_where_it_is_and_leaves_a_pid_file(started: Any) -> None:
    supervisor = psutil.Process(_pid(started))
    assert f"hub {supervisor.pid} answers on {started.url}" in started.start_output.stdout
    assert len(supervisor.children()) == 2
    assert started.client().status["role"] == "standalone"


def test_open_modes_warn_loudly(started: Any) -> None:
    where = f"127.0.0.1:{started.port}"
    warned = started.start_output.stderr.splitlines()
    assert f"WARNING: ANYONE MAY WRITE on {where}" in warned
    assert f"WARNING: ANYONE MAY READ on {where}" in warned
    status = started.client().status
    assert [status[name] for name in ("admission", "reads", "stream_scoping")] == [
        "open", "open", "off",
    ]  # fmt: skip


def test_a_plain_start_is_closed_and_does_not_warn(
    make_hub: Any, run_veen: Callable[..., Any]
) -> None:
    hub = make_hub()
    done = run_veen("hub", "start", *hub.arguments)
    assert done.returncode == 0
    assert "WARNING" not in done.stderr
    status = hub.client().status
    assert [status[name] for name in ("admission", "reads", "stream_scoping")] == [
        "gated", "policy", "enforced",
    ]  # fmt: skip


def test_status_key_health_and_metrics_tell_of_the_hub(
    started: Any, run_veen: Callable[..., Any]
) -> None:
    client = started.client()
    writer = client.writer(spec_objects.key("alice"), STREAM)
    receipts = client.submit_batch([writer.msg(b"%d" % n) for n in range(3)])
    status, key, health = (
        json.loads(run_veen("hub", command, "--hub", started.url, "--json").stdout)
        for command in ("status", "key", "health")
    )
    assert status["hub_id"] == client.hub_id.hex()
    assert status["profile_ids"][0] == spec_objects.PROFILE_ID.hex()
    assert (status["last_stream_seq"], status["last_label"]) == (3, writer.label.hex())
    assert status["limits"]["max_msg_bytes"] == 1_048_576
    assert set(key) == {"ok", "hub_id", "hub_pk", "hub_keys"}
    assert key["hub_pk"] == client.hub_pks[-1].hex()
    assert key["hub_keys"][0]["key_id"] == spec_objects.h(client.hub_pks[0]).hex()
    assert health.pop("disk_free_bytes") > 0
    assert health.pop("ready") is True
    assert health == {
        "ok": True, "profile_id": spec_objects.PROFILE_ID.hex(), "peaks_count": 2,
        "last_stream_seq": 3, "last_mmr_root": receipts[-1][4].hex(),
    }  # fmt: skip
    metrics = run_veen("hub", "metrics", "--hub", started.url, "--raw")
    assert metrics.returncode == 0
    assert "veen_submit_ok_total 3.0" in metrics.stdout.splitlines()


def test_a_hub_that_is_not_there_is_a_network_error(hub: Any, run_veen: Callable[..., Any]) -> None:
    done = run_veen("hub", "status", "--hub", hub.url)
    assert done.returncode == 2
    assert "does not answer" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("mode", ["background", "foreground"])
def test_only_the_owner_may_look_into_the_directory(
    mode: str, hub: Any, run_veen: Callable[..., Any]
) -> None:
    before = os.umask(0o022)
    try:
        if mode == "foreground":
            hub.start()
        else:
            assert run_veen("hub", "start", *hub.arguments).returncode == 0
        client = hub.client()
        writer = client.writer(spec_objects.key("alice"), STREAM)
        client.submit(writer.msg(b"1"))
        client.checkpoint(writer.label, 1)
    finally:
        os.umask(before)
    result = {path: _mode(path) for path in [hub.data, *hub.data.rglob("*")] if path.exists()}
    wrong = {
        str(path): oct(mode)
        for path, mode in result.items()
        if mode != (0o700 if path.is_dir() else 0o600)
    }
    assert wrong == {}
    assert len(result) > 15


def test_stop_is_graceful_and_port_and_directory_are_free_at_once(
    stream: str, started: Any, run_veen: Callable[..., Any]
) -> None:
    producers = [
        hub_load.Producer(started.client().writer(spec_objects.key(f"{n}"), stream))
        for n in range(3)
    ]
    for _ in range(2):
        pid = _pid(started)
        with hub_load.working(started, producers):
            hub_load.wait_for_promises(producers, 5)
            stopped = run_veen("hub", "stop", "--data-dir", started.data)
        assert (stopped.returncode, stopped.stdout) == (0, f"stopped hub {pid}\n")
        assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == "zombie"
        assert (started.data / "lock").read_text() == ""
        again = run_veen("hub", "start", *started.arguments)
        assert again.returncode == 0, again.stderr
    client = started.client()
    for producer in producers:
        producer.send(client)
    log = client.read(client.log(producers[0].writer.label))
    for producer in producers:
        assert all(log.entries[receipt[2] - 1][1] == receipt for receipt in producer.promised)
    assert sum(len(producer.promised) for producer in producers) == log.mmr.size


def test_stop_without_a_hub_says_so(hub: Any, run_veen: Callable[..., Any]) -> None:
    missing = run_veen("hub", "stop", "--data-dir", hub.data)
    assert missing.returncode == 4
    assert "which does not exist" in missing.stderr
    hub.data.mkdir(parents=True)
    done = run_veen("hub", "stop", "--data-dir", hub.data)
    assert done.returncode == 0
    assert "no hub runs on" in done.stdout


def test_stop_leaves_a_stranger_with_a_recycled_pid_alone(
    hub: Any, run_veen: Callable[..., Any]
) -> None:
    """A killed hub leaves its PID file; the number may belong to anyone by now."""
    hub.start()
    hub.kill(hub.processes())
    stranger = subprocess.Popen(["sleep", "60"])
    try:
        (hub.data / "run" / "hub.pid").write_text(f"{stranger.pid}\n")
        done = run_veen("hub", "stop", "--data-dir", hub.data, timeout=20)
        assert stranger.poll() is None, "the stranger was ended"
        assert "no hub runs on" in done.stdout
    finally:
        stranger.kill()
        stranger.wait()


def test_a_port_in_use_is_refused(
    hub: Any, make_hub: Callable[..., Any], run_veen: Callable[..., Any]
) -> None:
    hub.start()
    other = make_hub("--admission", "open", name="other", port=hub.port)
    done = run_veen("hub", "start", *other.arguments, "--foreground", timeout=60)
    assert done.returncode != 0
    assert "in use" in done.stderr
    assert hub.client().hub_id


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)
