"""The JSON form of a wire class as a JSON Schema, read off the fields' annotations."""

from __future__ import annotations

from dataclasses import fields
from types import NoneType
from typing import Annotated, Any, Final, get_args, get_origin, get_type_hints

from veen.cbor import UINT_MAX
from veen.msg import Msg
from veen.receipt import Receipt
from veen.schema import Size
from veen.wire import WireArray, WireMap, WireObject

# A raw item is named for what it holds.
_RAW_ITEMS: Final = {"msg": Msg, "msgs": Msg, "receipt": Receipt}
_UINT: Final = {"type": "integer", "minimum": 0, "maximum": UINT_MAX}
_PLAIN: Final[dict[Any, dict[str, Any]]] = {
    int: _UINT,
    str: {"type": "string"},
    bool: {"type": "boolean"},
    bytes: {"type": "string", "pattern": "^([0-9a-f]{2})*$"},
}
_MARKED: Final[dict[str, dict[str, Any]]] = {
    "version": {"const": 1},
    "detail": {"type": "object"},
}


class Schemas:
    """The component schemas of a document: each class that is referred to stands here once."""

    def __init__(self) -> None:
        self.components: dict[str, dict[str, Any]] = {}

    def refer(self, cls: type[WireObject]) -> dict[str, Any]:
        if cls.__name__ not in self.components:
            self.components[cls.__name__] = {}
            self.components[cls.__name__] = self._describe(cls)
        return {"$ref": f"#/components/schemas/{cls.__name__}"}

    def field(self, name: str, annotation: Any) -> dict[str, Any]:
        origin, arguments = get_origin(annotation), get_args(annotation)
        if NoneType in arguments:
            return self.field(name, arguments[0])
        if origin is Annotated:
            return self._marked(name, arguments[1])
        if origin is tuple:
            return {"type": "array", "items": self.field(name, arguments[0])}
        return dict(_PLAIN[annotation]) if annotation in _PLAIN else self.refer(annotation)

    def _marked(self, name: str, mark: Any) -> dict[str, Any]:
        if isinstance(mark, Size):
            return {"type": "string", "pattern": f"^[0-9a-f]{{{2 * mark.exact}}}$"}
        if mark.name in _MARKED:
            return dict(_MARKED[mark.name])
        return self.refer(_RAW_ITEMS[name])

    def _describe(self, cls: Any) -> dict[str, Any]:
        described = self._array(cls) if issubclass(cls, WireArray) else self._map(cls)
        lines = (cls.__doc__ or "").splitlines()
        if lines and not lines[0].startswith(f"{cls.__name__}("):
            described["description"] = lines[0]
        return described

    def _map(self, cls: type[WireMap]) -> dict[str, Any]:
        hints = get_type_hints(cls, include_extras=True)
        names = field_names(cls)
        return {
            "type": "object",
            "properties": {
                name: {**self.field(name, hints[name]), "x-cbor-key": key}
                for key, name in enumerate(names, 1)
            },
            "required": [name for name in names if NoneType not in get_args(hints[name])],
            "additionalProperties": False,
        }

    def _array(self, cls: type[WireArray]) -> dict[str, Any]:
        hints = get_type_hints(cls, include_extras=True)
        names = field_names(cls)
        due = [name for name in names if NoneType not in get_args(hints[name])]
        shortest = names.index(due[-1]) + 1
        return {
            "type": "array",
            "prefixItems": [
                self._element(name, hints[name], inner=place < shortest)
                for place, name in enumerate(names)
            ],
            "items": False,
            "minItems": shortest,
        }

    def _element(self, name: str, annotation: Any, *, inner: bool) -> dict[str, Any]:
        """An absent element is null, but at the end it is left out."""
        found = {**self.field(name, annotation), "title": name}
        if inner and NoneType in get_args(annotation):
            return {"anyOf": [found, {"type": "null"}], "title": name}
        return found


def query_parameters(schemas: Schemas, cls: type[WireMap]) -> list[dict[str, Any]]:
    hints = get_type_hints(cls, include_extras=True)
    return [
        {
            "name": name,
            "in": "query",
            "required": NoneType not in get_args(hints[name]),
            "schema": schemas.field(name, hints[name]),
        }
        for name in field_names(cls)
    ]


def field_names(cls: Any) -> list[str]:
    return [one.name for one in fields(cls)]
