"""The ASGI application of a hub: submits in the event loop, everything else by Flask."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from hub.api.app import create_app
from hub.api.context import context_of, new_request_id
from hub.api.errors import internal_error, refusal
from hub.sequencer.committer import Unavailable
from hub.sequencer.pipeline import CommitPipeline
from hub.settings import HubSettings
from hub.storage.datadir import DataDir
from hub.web.body import (
    SUBMIT,
    SUBMIT_BATCH,
    BodyMemory,
    Disconnected,
    HeldBytes,
    body_bound,
    read_body,
)
from hub.web.message import Message, Receive, Reply, RequestHead, Send
from hub.web.submit import SubmitRoutes
from hub.web.wsgi import WsgiBridge

_POST: Final = "POST"
_log = logging.getLogger(__name__)
Route = Callable[[bytes, str], Awaitable[Reply | None]]


class HubApplication:
    """Reads a body, then serves it by a route of the event loop or by the Flask application."""

    def __init__(self, settings: HubSettings, datadir: DataDir) -> None:
        app = create_app(settings, datadir)
        hub = context_of(app)
        threads = ThreadPoolExecutor(settings.threads, thread_name_prefix="flask")
        pipeline = CommitPipeline(datadir, hub.queue, settings.request_timeout_sec)
        submits = SubmitRoutes(hub, pipeline, threads)
        self._limits = settings.limits
        self._memory = BodyMemory()
        self._flask = WsgiBridge(app.wsgi_app, threads)
        self._routes: dict[str, Route] = {
            SUBMIT: submits.submit,
            SUBMIT_BATCH: submits.submit_batch,
        }

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        head = RequestHead.of(scope)
        with self._memory.holding() as held:
            try:
                reply = await self._reply(scope, head, receive, held)
            except Disconnected:
                return
            except Unavailable as error:
                request_id = new_request_id()
                reply = Reply.refusal(refusal(error, request_id), head.format, request_id)
            except Exception as error:  # noqa: BLE001 - a bug: the client gets its request id
                request_id = new_request_id()
                envelope = internal_error(error, request_id)
                reply = Reply.refusal(envelope, head.format, request_id)
            await reply.send(send)

    async def _reply(
        self, scope: Message, head: RequestHead, receive: Receive, held: HeldBytes
    ) -> Reply:
        bound = body_bound(head, self._limits)
        body = await read_body(receive, head, bound, held)
        route = self._routes.get(head.path)
        is_short = head.is_plain and head.method == _POST and len(body) == head.announced
        if route is not None and is_short:
            reply = await route(body, new_request_id())
            if reply is not None:
                held.add_receipts(len(reply.body))
                return reply
        reply = await self._flask.answer(scope, body)
        held.add(len(reply.body))
        return reply.closing() if len(body) > bound else reply
