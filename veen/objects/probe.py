"""Whether an S3-compatible store keeps the conditions that write-once and swaps rest on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from veen.objects import body as bodies
from veen.objects.retries import Retries
from veen.objects.s3 import ABSENT, Bucket, Condition, ConditionFailed, ConditionUnknown

# One name and the same bytes for ever: a second probe changes nothing, and none needs the right
# to delete.
PLACE: Final = "probe"
_BODY: Final = bodies.of_bytes(b"Written to see whether the store keeps conditional writes.\n")
_NOBODYS_ETAG: Final = '"00000000000000000000000000000000"'


@dataclass(frozen=True, slots=True)
class Conditions:
    keeps_if_none_match: bool
    keeps_if_match: bool


def probe(bucket: Bucket, retries: Retries) -> Conditions:
    """Put a key twice under each condition that does not hold; the store must refuse it."""

    def is_refused(condition: Condition) -> bool:
        try:
            retries.run("probe", lambda: bucket.put(PLACE, _BODY, condition))
        except ConditionFailed:
            return True
        except ConditionUnknown:
            return False
        return False

    # When the first put is refused, the key was there already and the word is kept.
    keeps_if_none_match = is_refused(ABSENT) or is_refused(ABSENT)
    return Conditions(keeps_if_none_match, is_refused(Condition(IfMatch=_NOBODYS_ETAG)))
