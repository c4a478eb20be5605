"""HeadStore on an S3-compatible bucket: a conditional put on the ETag that was read.

Every swap carries a token of its own in the metadata of the object. When an answer is lost, the
token that the head has afterwards tells whether it was ours; equal bytes would not, since two
writers may well want to write the same.
"""

from __future__ import annotations

import secrets
from typing import Final

from veen.objects import body as bodies
from veen.objects.key import check_key
from veen.objects.port import Head, HeadMoved, HeadUnknown, ObjectMissing, StoreError
from veen.objects.retries import Retries, Transient
from veen.objects.s3 import ABSENT, Bucket, Condition, ConditionFailed

FOLDER: Final = "heads/"


class S3Heads:
    def __init__(self, bucket: Bucket, retries: Retries, *, keeps_conditions: bool) -> None:
        self._bucket = bucket
        self._retries = retries
        self._keeps_conditions = keeps_conditions

    def read(self, name: str) -> Head:
        return self._read(name)[0]

    def swap(self, old: Head, value: bytes) -> Head:
        if not self._keeps_conditions and self.read(old.name) != old:
            raise HeadMoved(f"head {old.name} has moved")
        place, body, token = _place(old.name), bodies.of_bytes(value), secrets.token_hex(16)
        sent = 0

        def attempt() -> str:
            nonlocal sent
            sent += 1
            return self._bucket.put(place, body, self._condition(old), token).etag

        try:
            etag = self._retries.run(f"swap {old.name}", attempt)
        except (ConditionFailed, ObjectMissing):
            if sent == 1:
                return self._ours(token, HeadMoved(f"head {old.name} has moved"), old.name)
            return self._ours(token, _unknown(old.name), old.name)
        except Transient:
            return self._ours(token, _unknown(old.name), old.name)
        return Head(old.name, value, etag)

    def _ours(self, token: str, otherwise: StoreError, name: str) -> Head:
        """The head, if it is the one that we sent: an answer can be lost, and something between
        us and the store can send a request twice and pass on the second answer."""
        head, found = self._read(name)
        if found != token:
            raise otherwise
        return head

    def _read(self, name: str) -> tuple[Head, str]:
        place = _place(name)

        def attempt() -> tuple[Head, str]:
            with self._bucket.opened(place) as download:
                return Head(name, download.stream.read(), download.etag), download.token

        try:
            return self._retries.run(f"read {name}", attempt)
        except ObjectMissing:
            return Head(name, None, ""), ""

    def _condition(self, old: Head) -> Condition:
        if not self._keeps_conditions:
            return Condition()
        return ABSENT if old.value is None else Condition(IfMatch=old.version)


def _unknown(name: str) -> HeadUnknown:
    return HeadUnknown(f"head {name}: the answer to a swap was lost")


def _place(name: str) -> str:
    check_key(name)
    return FOLDER + name
