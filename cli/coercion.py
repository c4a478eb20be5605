"""Plain values of options without pydantic, whose import takes longer than most commands.

Typer has pydantic coerce every value, absent ones too. A value that needs no judgement is coerced
here to the same; every other goes to Typer, which refuses it in its own words.
"""

from __future__ import annotations

import os
import re
from enum import Enum
from pathlib import Path
from typing import Any, Final, get_args, get_origin

from typer.core import TyperCommand, TyperGroup

_INTEGER: Final = re.compile(r"-?(0|[1-9][0-9]{0,17})")
_DECIMAL: Final = re.compile(r"-?(0|[1-9][0-9]{0,14})(\.[0-9]{1,9})?")


class _NotPlain(Exception):
    """A value that Typer is to coerce."""


class _PlainValue:
    """The coercion of one parameter, in place of Typer's."""

    def __init__(self, parameter: Any) -> None:
        self._annotation = parameter.type_descriptor.annotation
        self._info = parameter.type_descriptor.parameter_info

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        try:
            return self._plain(value, is_many=param.multiple or param.nargs == -1)
        except _NotPlain:
            param._runtime_param = None  # noqa: SLF001 - Typer makes its own
            coerced = param.get_runtime_param().coerce(value, param=param, ctx=ctx)
            param._runtime_param = self  # noqa: SLF001
            return coerced

    def _plain(self, value: Any, *, is_many: bool) -> Any:
        if value is None:
            return () if is_many else None
        if get_origin(self._annotation) is not list:
            return self._plain_item(value, self._annotation)
        if not isinstance(value, (list, tuple)):
            raise _NotPlain
        (kind,) = get_args(self._annotation)
        return [self._plain_item(item, kind) for item in value]

    def _plain_item(self, value: Any, kind: Any) -> Any:
        if self._info.parser is not None:
            raise _NotPlain
        if isinstance(kind, type) and issubclass(kind, Enum):
            return self._member(value, kind)
        if kind is str and isinstance(value, str) and _is_unicode(value):
            return value
        if kind is Path:
            return self._path(value)
        if kind is int or kind is float:
            return self._number(value, kind)
        raise _NotPlain

    def _member(self, value: Any, kind: type[Enum]) -> Enum:
        for member in kind:
            if value is member or (value == member.value and self._info.case_sensitive):
                return member
        raise _NotPlain

    def _path(self, value: Any) -> Path:
        info = self._info
        is_checked = info.exists or info.writable or info.resolve_path or info.allow_dash
        is_limited = not info.file_okay or not info.dir_okay or info.path_type is not None
        if is_checked or is_limited or not isinstance(value, (str, Path)):
            raise _NotPlain
        # Typer refuses a file that exists and is not readable.
        if not _is_unicode(str(value)) or (info.readable and not _is_readable(value)):
            raise _NotPlain
        return Path(value)

    def _number(self, value: Any, kind: type[int | float]) -> float:
        pattern = _INTEGER if kind is int else _DECIMAL
        if isinstance(value, str) and pattern.fullmatch(value):
            value = kind(value)
        if type(value) is not kind:
            raise _NotPlain
        low, high = self._info.min, self._info.max
        if self._info.clamp or (low is not None and value < low):
            raise _NotPlain
        if high is not None and value > high:
            raise _NotPlain
        return value


class PlainCommand(TyperCommand):
    """A command that has plain values coerced here."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _coerced_here(super().get_params(ctx))


class PlainGroup(TyperGroup):
    """A group that has plain values coerced here."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _coerced_here(super().get_params(ctx))


def _coerced_here(parameters: list[Any]) -> list[Any]:
    for parameter in parameters:
        # Releases of Typer without this attribute coerce without pydantic.
        if getattr(parameter, "_runtime_param", 0) is None:
            parameter._runtime_param = _PlainValue(parameter)  # noqa: SLF001
    return parameters


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_readable(path: str | Path) -> bool:
    try:
        os.stat(path)  # noqa: PTH116 - as Typer does
    except OSError:
        return True
    return os.access(path, os.R_OK)
