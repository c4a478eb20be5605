"""H22: a start is told of the process that was started, not of whoever answers at its address.

H29: stopping a stopped hub, directories that moved, and directories at the root of a volume.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hub.storage.datadir import DataDir, DataDirLock, DataDirLocked, Holder, boot_id, file_system
from support import mount_table
from veen.client.transport import resolve_address
from veen.errors import VeenError
from veen.keystore.directory import ClientDir
from veen.system.child_process import born, every_process
from veen.system.listening import is_served_by
from zone.services import free_port

OPEN = ("--admission", "open", "--reads", "open")
MOUNTS = """\
21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 21 0:40 / /srv/nfs rw - nfs4 server:/export rw
31 30 8:2 / /srv/nfs/disk rw - xfs /dev/sdb1 rw
32 21 0:41 / /mnt/two\\040words rw - cifs //server/share rw
33 21 0:42 / /mnt/over rw - ext4 /dev/sdc1 rw
34 21 0:43 / /mnt/over rw - fuse.sshfs host:/ rw
35 21 0:44 / /mnt/日本\x85é\udcff rw - xfs /dev/sdd1 rw
"""


@pytest.fixture(scope="module")
def gated(make_shared_hub: Callable[..., Any]) -> Any:
    return make_shared_hub(name="gated").start()


def test_h22_a_port_that_another_hub_serves_is_refused(
    gated: Any, make_hub: Callable[..., Any], run_veen: Callable[..., Any]
) -> None:
    other = make_hub(*OPEN, port=gated.port)
    for mode in ((), ("--foreground",)):
        done = run_veen("hub", "start", *other.arguments, *mode)
        assert done.returncode == 4
        assert f"cannot listen on 127.0.0.1:{gated.port}" in done.stderr
        assert "answers" not in done.stdout
        assert "ANYONE" not in done.stderr
    assert gated.is_ready()


def test_h22_a_directory_that_a_hub_holds_is_refused(
    gated: Any, run_veen: Callable[..., Any]
) -> None:
    where = ("--data-dir", gated.data, "--listen", f"127.0.0.1:{gated.port}")
    for mode in ((), ("--foreground",)):
        done = run_veen("hub", "start", *where, *OPEN, *mode)
        assert done.returncode == 4
        assert "is held by another hub" in done.stderr
        assert "answers" not in done.stdout
        assert "ANYONE" not in done.stderr
    assert gated.is_ready()


def test_h22_whoever_takes_the_port_in_time_does_not_answer_for_us(gated: Any) -> None:
    """The same question that a start asks, of a process that is not the one that listens."""
    where = f"127.0.0.1:{gated.port}"
    family = [process.pid for process in gated.processes()]
    assert is_served_by(where, family)
    assert not is_served_by(where, [os.getpid()])
    assert not is_served_by(where, [])
    assert not is_served_by(f"127.0.0.2:{gated.port}", family)


def test_h22_a_socket_of_another_address_is_no_hindrance() -> None:
    with socket.socket() as ours, socket.socket() as theirs:
        ours.bind(("127.0.0.1", 0))
        ours.listen()
        port = ours.getsockname()[1]
        assert is_served_by(f"127.0.0.1:{port}", [os.getpid()])
        code = f"import socket; s = socket.create_server(('127.0.0.2', {port})); input()"
        other = subprocess.Popen(
            [sys.executable, "-c", f"{code}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        try:
            while not is_served_by(f"127.0.0.2:{port}", [other.pid]):
                assert other.poll() is None
            assert is_served_by(f"127.0.0.1:{port}", [os.getpid()])
            assert not is_served_by(f"127.0.0.2:{port}", [os.getpid()])
        finally:
            other.communicate(b"\n")
        theirs.bind(("0.0.0.0", 0))
        theirs.listen()
        assert is_served_by(f"127.0.0.1:{theirs.getsockname()[1]}", [os.getpid()])


@pytest.fixture
def unnamed() -> Iterator[subprocess.Popen[bytes]]:
    """A process whose name is no UTF-8 and looks like the end of a name."""
    code = "import ctypes; ctypes.CDLL(None).prctl(15, b'\\xff) Z 1'); print(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.communicate(b"\n")


def test_h22_a_process_with_any_name_is_no_hindrance(unnamed: subprocess.Popen[bytes]) -> None:
    result = born(unnamed.pid)
    assert result is not None
    assert result.is_alive()
    assert [stat.parent for stat in every_process() if stat.pid == unnamed.pid] == [os.getpid()]


def test_h22_a_start_that_is_interrupted_leaves_no_hub(
    tmp_path: Path, wait_until: Callable[..., Any]
) -> None:
    """The hub is stopped for a moment, so that it is not ready before the signal comes."""
    where = ("--data-dir", str(tmp_path / "hub"), "--listen", f"127.0.0.1:{free_port()}")
    command = [sys.executable, "-m", "cli.main", "hub", "start", *where]
    with subprocess.Popen(command, preexec_fn=_hear_interrupts) as starting:  # noqa: PLW1509
        wait_until(lambda: _children(starting.pid), 60, "a process of the hub")
        (hub,) = _children(starting.pid)
        os.kill(hub, signal.SIGSTOP)
        starting.send_signal(signal.SIGINT)
        os.kill(hub, signal.SIGCONT)
        assert starting.wait(60) != 0
    assert born(hub) is None


def _hear_interrupts() -> None:
    """Even if whoever runs the tests does not."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _children(pid: int) -> list[int]:
    return [stat.pid for stat in every_process() if stat.parent == pid]


def test_h29_to_stop_a_stopped_hub_is_no_error(
    make_hub: Callable[..., Any], run_veen: Callable[..., Any]
) -> None:
    hub = make_hub(*OPEN)
    assert run_veen("hub", "start", *hub.arguments).returncode == 0
    pid = int((hub.data / "run" / "hub.pid").read_text())
    done = run_veen("hub", "stop", "--data-dir", hub.data, "--json")
    assert json.loads(done.stdout)["pid"] == pid
    for _ in range(2):
        done = run_veen("hub", "stop", "--data-dir", hub.data)
        assert done.returncode == 0
        assert done.stdout == f"no hub runs on {hub.data}: nothing to stop\n"


def test_h29_a_directory_that_does_not_exist_is_not_called_stopped(
    tmp_path: Path, run_veen: Callable[..., Any]
) -> None:
    done = run_veen("hub", "stop", "--data-dir", tmp_path / "mistyped")
    assert (done.returncode, done.stdout) == (4, "")
    assert f"no hub runs on {tmp_path / 'mistyped'}, which does not exist" in done.stderr


def test_h29_a_refused_lock_names_its_holder_and_a_command_to_copy(tmp_path: Path) -> None:
    datadir = DataDir(tmp_path / "a & b")
    datadir.create()
    lock = DataDirLock(datadir)
    with pytest.raises(DataDirLocked) as refused:
        DataDirLock(datadir)
    lock.release()
    assert f"(process {os.getpid()} on host {socket.gethostname()})" in str(refused.value)
    assert str(refused.value).endswith(f"veen hub stop --data-dir '{datadir.root}'")


@pytest.mark.parametrize(
    "refusal",
    [
        lambda root: resolve_address(str(root)),
        lambda root: ClientDir(root).open(None),
    ],
    ids=["no hub", "no identity"],
)
def test_h29_commands_to_copy_are_quoted(tmp_path: Path, refusal: Callable[[Path], Any]) -> None:
    root = tmp_path / "a & b"
    root.mkdir()
    with pytest.raises(VeenError) as refused:
        refusal(root)
    assert f"'{root}'" in str(refused.value)


def test_h29_a_held_directory_without_a_hub_is_not_called_stopped(
    tmp_path: Path, run_veen: Callable[..., Any]
) -> None:
    datadir = DataDir(tmp_path)
    datadir.create()
    lock = DataDirLock(datadir)
    done = run_veen("hub", "stop", "--data-dir", tmp_path)
    lock.release()
    assert done.returncode == 4
    assert "held by another process" in done.stderr


def left(datadir: DataDir, **holder: object) -> None:
    datadir.create()
    (datadir.root / "lock").write_text(json.dumps(holder))


@pytest.mark.parametrize(
    ("holder", "is_local", "starts"),
    [
        ({"host": "elsewhere", "pid": 1}, True, True),
        ({"host": "elsewhere", "pid": 1, "boot": "another"}, True, True),
        ({"host": "elsewhere", "pid": 1}, False, False),
        ({"host": "elsewhere", "pid": 1, "boot": "another"}, False, False),
        ({"host": "elsewhere", "pid": 1, "boot": boot_id()}, False, True),
        ({"host": socket.gethostname(), "pid": 1}, False, True),
        ({"torn": True}, False, True),
    ],
    ids=["moved, old form", "moved", "shared, old form", "shared", "renamed", "rebooted", "torn"],
)
def test_h29_a_lock_is_stale_when_its_process_is_provably_gone(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    holder: dict[str, object],
    is_local: bool,
    starts: bool,
) -> None:
    mount_table.mount_as(monkeypatch, tmp_path, "ext4" if is_local else "nfs4")
    datadir = DataDir(tmp_path)
    left(datadir, **holder)
    if not starts:
        with pytest.raises(DataDirLocked, match="of host 'elsewhere'"):
            DataDirLock(datadir)
        return
    lock = DataDirLock(datadir)
    result = Holder.decode((tmp_path / "lock").read_text())
    assert result == Holder(socket.gethostname(), os.getpid(), boot_id())
    lock.release()


@pytest.mark.parametrize(
    ("directory", "kind"),
    [
        ("/srv/hub", "ext4"),
        ("/srv/nfs", "nfs4"),
        ("/srv/nfs/hub", "nfs4"),
        ("/srv/nfs/disk/hub", "xfs"),
        ("/srv/nfs/disk-2", "nfs4"),
        ("/mnt/two words/hub", "cifs"),
        ("/mnt/over/hub", "fuse.sshfs"),
        ("/mnt/日本\x85é\udcff/hub", "xfs"),
    ],
)
def test_h29_the_file_system_is_that_of_the_nearest_mount(directory: str, kind: str) -> None:
    assert file_system(Path(directory), MOUNTS) == kind


def test_h29_a_directory_at_the_root_of_a_volume_starts(tmp_path: Path) -> None:
    """The root of a volume belongs to whoever mounted it; a hub without rights cannot change it."""
    if os.geteuid() != 0:
        pytest.skip("only root can make a directory of somebody else's")
    root = tmp_path / "volume"
    root.mkdir()
    root.chmod(0o777)
    (root / "lost+found").mkdir(mode=0o700)
    child = os.fork()
    if child == 0:
        os.chdir(root)
        os.setgroups([])
        os.setuid(65_534)
        ended = 1
        try:
            DataDir(Path()).create()
            DataDirLock(DataDir(Path())).release()
            ended = 0
        finally:
            os._exit(ended)
    assert os.waitpid(child, 0)[1] == 0
    assert (root / "log").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("name", [b"\xe6\x97\xa5", b"\xc3\x85", b"\xff\x0c"])
def test_h29_a_mount_point_of_any_bytes_stops_no_hub(name: bytes) -> None:
    """The label of a medium, as a desktop names mount points; Path takes it in either form."""
    point = b"/media/" + name
    line = b"30 1 8:1 / " + point + b" rw - vfat /dev/sdb1 rw\n"
    assert file_system(Path(os.fsdecode(point)), os.fsdecode(line)) == "vfat"
