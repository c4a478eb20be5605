"""Work handed to processes beside: in order, whole, and ended with whoever asked for it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from veen.errors import Untrusted
from veen.system.process_pool import IN_PROCESS, PoolBroken, pool


def _double(number: int) -> int:
    return 2 * number


def _refuse(number: int) -> int:
    if number == 3:
        raise Untrusted("three is refused")
    return number


def _who(_: int) -> int:
    return os.getpid()


def _die(_: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("processes", [0, 1, 3])
def test_results_come_in_the_order_of_the_parts(processes: int) -> None:
    with pool(processes) as beside:
        assert list(beside.run(_double, range(10))) == [2 * n for n in range(10)]
        assert list(beside.run(_double, [])) == []


@pytest.mark.parametrize("processes", [0, 2])
def test_an_error_of_the_work_is_raised_and_the_pool_works_on(processes: int) -> None:
    with pool(processes) as beside:
        with pytest.raises(Untrusted, match="three is refused"):
            list(beside.run(_refuse, range(6)))
        assert list(beside.run(_double, [1, 2])) == [2, 4]


def test_the_work_is_done_beside_and_its_processes_end_with_the_block() -> None:
    with pool(2) as beside:
        pids = set(beside.run(_who, range(4)))
    assert len(pids) == 2
    assert os.getpid() not in pids
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_a_killed_process_is_reported_and_not_waited_for() -> None:
    with pool(1) as beside, pytest.raises(PoolBroken):
        list(beside.run(_die, [1]))


def test_without_processes_the_work_is_done_here() -> None:
    assert list(IN_PROCESS.run(_who, [1])) == [os.getpid()]


def test_threads_take_turns_and_each_has_its_own_answers() -> None:
    with pool(2) as beside, ThreadPoolExecutor(4) as threads:
        asked = [range(100 * number, 100 * number + 50) for number in range(8)]
        result = list(threads.map(lambda some: list(beside.run(abs, some)), asked))
    assert result == [list(some) for some in asked]


def _large(part: bytes) -> bytes:
    return bytes(len(part))


def _ignore(_: object) -> int:
    return 0


class _Unreadable:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return __import__, ("no_such_module_anywhere",)


def test_parts_and_results_larger_than_any_pipe_do_not_wait_for_each_other() -> None:
    with pool(2) as beside:
        run = list(beside.run(_large, (bytes(2 << 20) for _ in range(20))))
    assert [len(item) for item in run] == [2 << 20] * 20


def test_a_part_that_a_process_cannot_read_ends_it_and_is_reported() -> None:
    with pool(1) as beside, pytest.raises(PoolBroken):
        list(beside.run(_ignore, [_Unreadable()]))


def test_only_a_few_parts_are_taken_before_their_results_are() -> None:
    taken = []

    def parts() -> Iterator[int]:
        for number in range(100):
            taken.append(number)
            yield number

    with pool(2) as beside:
        run = beside.run(_double, parts())
        next(run)
        assert len(taken) <= 8
        run.close()  # type: ignore[attr-defined]
        assert list(beside.run(_double, [5])) == [10]
