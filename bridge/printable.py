"""Text from a medium, made safe to show and to file: one line, ASCII, no control characters."""

from typing import Final

NAME: Final = 200
"""How much of a name is shown."""


def printable(text: str, most: int = NAME) -> str:
    shown = text.encode("unicode_escape", "backslashreplace").decode("ascii")
    return shown if len(shown) <= most else f"{shown[:most]}..."
