"""A crash at any write of a seal leaves nothing that the next seal does not complete."""

from __future__ import annotations

from typing import Any

import pytest

from hub.storage import identity
from hub.storage.label_log import Damaged
from veen import durable


class Crash(BaseException):
    """The process ends here."""


@pytest.fixture
def crash_at(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Make the nth durable step from now on the last thing that happens."""

    def arm(step: int) -> None:
        steps = iter(range(1, 1 << 30))
        for name in ("write", "append", "rename"):
            real = getattr(durable, name)

            def counted(*args: Any, real: Any = real) -> Any:
                if next(steps) >= step:
                    raise Crash
                return real(*args)

            monkeypatch.setattr(durable, name, counted)

    yield arm
    monkeypatch.undo()


@pytest.mark.parametrize("rebuilt", [False, True])
@pytest.mark.parametrize("step", range(1, 8))
def test_a_seal_that_crashed_is_completed(
    bench: Any, tools: Any, crash_at: Any, monkeypatch: Any, step: int, rebuilt: bool
) -> None:
    client, stream = tools.a_key("client"), tools.STREAMS[0]
    token = bench.authorize(client)
    bench.send(client, stream, token, 8)
    crash_at(step)
    with pytest.raises(Crash):
        bench.send(client, stream, token)
    monkeypatch.undo()
    bench.stop()
    if rebuilt:
        tools.rebuild(bench.root)
    bench.start()
    bench.sent[bench.label(stream), client.public] = 8
    bench.send(client, stream, token)
    bench.committer.checkpoint(bench.label(stream), 8, bench.now)
    bench.stop()
    report = bench.verify()
    assert (report.faults, report.derived) == ((), ())


@pytest.mark.parametrize("torn", [1, 20, 60, 130])
def test_a_torn_line_of_the_manifest_is_cut(bench: Any, tools: Any, torn: int) -> None:
    client, stream = tools.a_key("client"), tools.STREAMS[0]
    token = bench.authorize(client)
    bench.send(client, stream, token, 9)
    path = bench.root / "checkpoint-binding.cborseq"
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:torn])
    assert len(identity.read_bindings(bench.datadir)) == 1
    bench.send(client, stream, token, 8)
    bench.stop()
    assert bench.verify().ok


def test_a_sealed_chunk_that_is_gone_is_refused_at_the_start(bench: Any, tools: Any) -> None:
    client, stream = tools.a_key("client"), tools.STREAMS[0]
    bench.send(client, stream, bench.authorize(client), 9)
    bench.stop()
    tools.the(bench.root, "log/*.log").unlink()
    with pytest.raises(Damaged, match="is missing"):
        bench.start()
