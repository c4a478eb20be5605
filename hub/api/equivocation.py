"""Reported equivocation: two receipts of this hub that cannot both be true."""

from __future__ import annotations

import logging

from flask import Blueprint, Response

from hub.api.edge import SERVER_VERSION, edge
from hub.api.negotiation import answer, small_body
from hub.api.refused import Refused
from veen.digest import h
from veen.durable import write_once
from veen.errors import Code, Untrusted
from veen.hub_identity import HubIdentity
from veen.receipt import Receipt
from veen.tooling import EquivocationReport, EquivocationResponse

bp = Blueprint("equivocation", __name__)
_log = logging.getLogger(__name__)


@bp.post("/tooling/report_equivocation")
def report_equivocation() -> Response:
    """Anyone may report: the two signatures are the hub's own, or nothing is kept."""
    hub, body = edge(), small_body()
    report = body.envelope(EquivocationReport)
    _refuse_unproven(report, hub.identity.current())
    evidence = EquivocationReport(ver=1, **_ordered(report)).encode()
    evidence_id = h(evidence)
    write_once(hub.datadir.evidence / f"equivocation-{evidence_id.hex()}.cbor", evidence)
    _log.critical(
        "this hub signed two receipts of label %s that contradict, at %d and %d: evidence %s",
        report.first.label.hex(), report.first.stream_seq, report.second.stream_seq,
        evidence_id.hex(),
    )  # fmt: skip
    return answer(EquivocationResponse(evidence_id=evidence_id, server_version=SERVER_VERSION))


def _ordered(report: EquivocationReport) -> dict[str, Receipt]:
    """One pair is one piece of evidence, whichever way round it is told."""
    first, second = sorted((report.first, report.second), key=Receipt.encode)
    return {"first": first, "second": second}


def _refuse_unproven(report: EquivocationReport, identity: HubIdentity) -> None:
    first, second = report.first, report.second
    if not first.contradicts(second):
        raise Refused(Code.BAD_REQUEST, "the two receipts can both be true")
    try:
        identity.verify_receipt(first)
        identity.verify_receipt(second)
    except Untrusted as error:
        raise Refused(Code.BAD_REQUEST, str(error)) from error
