"""H12: logs are rotated by size across processes, and their last lines are read from the end."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

from veen.system import log_file

_WRITER = """
import logging, os, sys
from veen.system.log_file import RotatingHandler, redirected_output
output = redirected_output(4096, 50)
assert output is not None
os.write(int(sys.argv[2]), b"+")
sys.stdin.read()  # until all writers know their file, which the first of them will rename
log = logging.getLogger("writer")
log.addHandler(RotatingHandler(output))
log.setLevel("INFO")
for number in range(200):
    log.info("%s %d %s", sys.argv[1], number, "x" * 40)
sys.stdout.write(f"end of {sys.argv[1]}\\n")
"""


def test_h12_several_processes_share_one_rotated_log(tmp_path: Path) -> None:
    path = tmp_path / "hub.log"
    ready, tell = os.pipe()
    with path.open("ab") as log:
        writers = [
            subprocess.Popen(
                [sys.executable, "-c", _WRITER, name, str(tell)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                pass_fds=[tell],
            )
            for name in ("a", "b", "c")
        ]
    os.close(tell)
    with os.fdopen(ready, "rb", buffering=0) as file:
        assert file.read(1) + file.read(1) + file.read(1) == b"+++", path.read_text()
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.close()
    assert [writer.wait(60) for writer in writers] == [0, 0, 0]
    files = list(tmp_path.glob("hub.log*"))
    assert all(file.stat().st_size < 4096 + 4 * 60 for file in files)
    lines = [line for file in files for line in file.read_text().splitlines()]
    for name in ("a", "b", "c"):
        numbers = [int(line.split()[1]) for line in lines if line.startswith(f"{name} ")]
        assert sorted(numbers) == list(range(200)), "a line was lost or written twice"
    newest = path.read_text() + (tmp_path / "hub.log.1").read_text()
    assert "end of" in newest, "standard output did not move with standard error"


def test_h12_the_oldest_file_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "hub.log"
    for text in ("first", "second", "third", "fourth"):
        path.write_text(text)
        log_file.rotate_names(path, 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hub.log.1", "hub.log.2"]
    assert (tmp_path / "hub.log.1").read_text() == "fourth"
    assert (tmp_path / "hub.log.2").read_text() == "third"


def test_h12_output_that_is_no_file_is_left_alone(tmp_path: Path) -> None:
    code = "from veen.system.log_file import redirected_output as r; print(r(4096, 3))"
    piped = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert piped.stdout.strip() == "None"


def test_h12_the_last_lines_are_read_from_the_end(tmp_path: Path) -> None:
    path = tmp_path / "hub.log"
    with path.open("wb") as file:
        file.seek(1 << 32)  # a sparse file: reading all of it would take 4 GiB
        file.write(b"\n" + b"".join(b"line %d\n" % item for item in range(100)))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert log_file.last_lines(path, 3) == ["line 97", "line 98", "line 99"]
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000


def test_h12_short_files_and_one_long_line(tmp_path: Path) -> None:
    path = tmp_path / "hub.log"
    path.write_text("one\ntwo")
    assert log_file.last_lines(path, 5) == ["one", "two"]
    assert log_file.last_lines(path, 0) == []
    path.write_text("x" * 100)
    assert log_file.last_lines(path, 5, max_bytes=10) == ["x" * 10]
