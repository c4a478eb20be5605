"""submit and submit_batch in the event loop: CBOR in, CBOR out (spec 10.4.1).

Only requests that parse are served here; ``None`` says that the view of Flask is to refuse one.
Signatures are verified in slices of a few messages, so that a large batch does not keep other
requests waiting.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Executor
from itertools import repeat
from typing import Final

from hub.api.content import ContentFormat, RequestBody, RequestRefused
from hub.api.context import (
    SERVER_VERSION,
    Checked,
    HubContext,
    SubmitBatch,
    SubmitResult,
    passed,
    results_of,
)
from hub.api.errors import refusal
from hub.api.submit import (
    attach_first_receipts,
    batch_messages,
    encode_results,
    has_first_receipt,
    record,
)
from hub.sequencer.committer import Outcome, Unavailable
from hub.sequencer.pipeline import CommitPipeline
from hub.web.message import Reply
from veen.wire.api import SubmitRequest, encode_receipt

SLICE: Final = 8
"""The messages that are verified between two turns of the event loop, about a millisecond."""


class SubmitRoutes:
    """The two routes; ``threads`` reads the first receipts of duplicates from disk."""

    def __init__(self, hub: HubContext, pipeline: CommitPipeline, threads: Executor) -> None:
        self._hub = hub
        self._pipeline = pipeline
        self._threads = threads

    async def submit(self, raw: bytes, request_id: str) -> Reply | None:
        try:
            message = RequestBody(raw, ContentFormat.CBOR).envelope(SubmitRequest).msg
        except RequestRefused:
            return None
        (result,) = await self._take([message], request_id)
        if isinstance(result.outcome, bytes):
            return Reply.cbor(encode_receipt(result.outcome, SERVER_VERSION), request_id)
        return Reply.refusal(refusal(result.outcome, request_id), ContentFormat.CBOR, request_id)

    async def submit_batch(self, raw: bytes, request_id: str) -> Reply | None:
        try:
            messages = batch_messages(RequestBody(raw, ContentFormat.CBOR))
        except RequestRefused:
            return None
        results = await self._take(messages, request_id)
        return Reply.cbor(encode_results(results, request_id), request_id)

    async def _take(self, messages: Sequence[bytes], request_id: str) -> list[SubmitResult]:
        start, metrics = time.perf_counter(), self._hub.metrics
        metrics.queue_depth.inc(len(messages))
        try:
            batch = await self._admit(messages)
        finally:
            metrics.queue_depth.dec(len(messages))
        if any(map(has_first_receipt, batch.results)):
            loop, reader = asyncio.get_running_loop(), self._hub.reader
            await loop.run_in_executor(self._threads, attach_first_receipts, reader, batch.results)
        record(batch, metrics, request_id)
        metrics.end_to_end_latency.observe(1_000 * (time.perf_counter() - start))
        return batch.results

    async def _admit(self, messages: Sequence[bytes]) -> SubmitBatch:
        """Check each message by itself; commit those that pass together and in order."""
        checked, verify_sec = await self._check(messages)
        start = time.perf_counter()
        try:
            outcomes: Iterable[Outcome] = await self._pipeline.commit(passed(checked))
        except Unavailable as error:
            outcomes = repeat(error)
        commit_sec = time.perf_counter() - start
        results = results_of(messages, checked, outcomes)
        return SubmitBatch(results, 1_000 * verify_sec, 1_000 * commit_sec)

    async def _check(self, messages: Sequence[bytes]) -> tuple[list[Checked], float]:
        """The checked messages, and the seconds that the checks took."""
        checked: list[Checked] = []
        spent = 0.0
        check = self._hub.admission.check
        for at in range(0, len(messages), SLICE):
            if at:
                await asyncio.sleep(0)
            start = time.perf_counter()
            checked += [check(raw) for raw in messages[at : at + SLICE]]
            spent += time.perf_counter() - start
        return checked, spent
