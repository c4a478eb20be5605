"""The deadlines of a connection in the event loop."""

from __future__ import annotations

import pytest

from veen.system.asgi_server import RequestLimits, RequestProgress
from veen.system.http_server import SLOWEST_BYTES_PER_SEC

LIMITS = RequestLimits(request_sec=30, body_sec=3, idle_sec=20)


@pytest.mark.parametrize(
    ("progress", "late_after"),
    [
        pytest.param(RequestProgress(0), 20, id="idle"),
        pytest.param(RequestProgress(0, 1, is_idle=False), 3, id="one byte"),
        pytest.param(
            RequestProgress(0, 5 * SLOWEST_BYTES_PER_SEC, is_idle=False), 8, id="steady sender"
        ),
        pytest.param(
            RequestProgress(0, 100 * SLOWEST_BYTES_PER_SEC, is_idle=False), 30, id="large body"
        ),
        pytest.param(RequestProgress(0, 1, is_read=True, is_idle=False), 30, id="read"),
        pytest.param(
            RequestProgress(0, 1, is_answered=True, is_idle=False), 30, id="response not taken"
        ),
    ],
)
def test_a_connection_is_late(progress: RequestProgress, late_after: float) -> None:
    assert not progress.is_late(late_after - 0.1, LIMITS)
    assert progress.is_late(late_after + 0.1, LIMITS)
