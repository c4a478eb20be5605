"""The arguments of a GET, each given once, as strictly as a body."""

from __future__ import annotations

import re
from typing import Final, TypeVar

from flask import request

from hub.api.refused import Refused
from veen.errors import Code, Malformed
from veen.wire import WireMap

W = TypeVar("W", bound=WireMap)

_NUMBERS: Final = {"from_seq", "limit", "after"}
_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,19}")


def query(cls: type[W]) -> W:
    values: dict[str, object] = {}
    for name, given in request.args.lists():
        if len(given) != 1:
            raise Refused(Code.BAD_REQUEST, f"{name} is given twice", {"field": name})
        number = name in _NUMBERS and _NUMBER.fullmatch(given[0])
        values[name] = int(given[0]) if number else given[0]
    try:
        return cls.from_json(values)
    except Malformed as error:
        raise Refused(Code.BAD_REQUEST, str(error)) from error
