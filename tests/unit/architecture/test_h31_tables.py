"""H31: nothing that decides asks the Unicode tables of the interpreter."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from support.paths import ROOT

PACKAGES = ("veen", "hub", "recorder", "bridge", "spark_jobs")
BY_TABLE = {
    "capitalize", "casefold", "isalnum", "isalpha", "isdecimal", "isdigit", "isidentifier",
    "islower", "isnumeric", "isprintable", "isspace", "istitle", "isupper", "lower", "normalize",
    "swapcase", "title", "upper",
}  # fmt: skip
KNOWN = {
    # Names of files in a bag, without regard to case: this can only refuse (ADR 0061).
    ("bridge/carrier/bag.py", "casefold"),
    ("bridge/carrier/bag.py", "normalize"),
    ("bridge/standalone_verifier.py", "casefold"),
    ("bridge/standalone_verifier.py", "normalize"),
    # Compared with a word of ASCII, which nothing else becomes in lower case.
    ("hub/api/context.py", "lower"),
    ("hub/web/message.py", "lower"),
    ("recorder/api/auth.py", "lower"),
    ("recorder/anchor/rfc3161.py", "lower"),
    ("veen/objects/store.py", "lower"),
    # The name of a header, which the parser has matched with a token of ASCII.
    ("hub/web/wsgi.py", "upper"),
}


def uses() -> Iterator[tuple[str, str]]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            name, text = str(path.relative_to(ROOT)), path.read_text("utf-8")
            for used in _used(text):
                yield name, used


def _used(text: str) -> Iterator[str]:
    lines = text.splitlines()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call):
            called = getattr(node.func, "attr", getattr(node.func, "id", ""))
            # After isascii() there is one answer, and it stands on the same line.
            if called in BY_TABLE and "isascii()" not in lines[node.lineno - 1]:
                yield called
            if isinstance(node.func, ast.Attribute) and _is_re(node.func.value):
                yield from _classes(node.args[0])


def _is_re(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "re"


def _classes(pattern: ast.expr) -> Iterator[str]:
    for node in ast.walk(pattern):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from re.findall(r"\\[wWdDsSbB]", node.value)


def test_h31_no_table_of_the_interpreter_decides() -> None:
    assert set(uses()) == KNOWN
