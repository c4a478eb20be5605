"""The extras of the package, the commands that need one, and the error when it is not installed.

``pip install veen`` installs a client. ``docs/install.md`` lists the extras.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Final

from veen.errors import VeenError

EXTRAS: Final[Mapping[str, Mapping[str, str]]] = {
    "hub": {"flask": "Flask", "gunicorn": "gunicorn"},
    "recorder": {"flask": "Flask", "gunicorn": "gunicorn", "pyarrow": "PyArrow"},
    "bridge": {"qrcode": "qrcode", "zfec": "zfec", "zstandard": "zstandard"},
    "s3": {"boto3": "boto3", "botocore": "boto3"},
    "spark": {"pyspark": "Spark", "pandas": "pandas", "pyarrow": "PyArrow"},
    "airflow": {"airflow": "Airflow"},
}
"""The modules of each extra that commands import or run, by their display names."""

NEEDS: Final[Mapping[str, tuple[str, ...]]] = {
    "veen hub start": ("hub",),
    "veen recorder serve": ("recorder",),
    "veen bridge": ("bridge",),
    "veen zone up": ("airflow",),
    "veen demo": ("airflow",),
    "veen selftest": ("hub", "recorder", "bridge"),
}
"""Commands, and groups with all their commands, that do nothing without an extra.

What only some options need is not here: a store in S3, Parquet, Spark.
"""


class MissingExtra(VeenError):
    """A command needs packages that the base installation does not have."""


def require(command: str, *extras: str) -> None:
    """Raise unless every module of ``extras`` can be imported."""
    missing = {extra: _missing(extra) for extra in extras}
    labels = sorted({label for absent in missing.values() for label in absent}, key=str.casefold)
    if labels:
        names = ",".join(extra for extra, absent in missing.items() if absent)
        raise MissingExtra(f"{command} needs {_listed(labels)}: install veen[{names}]")


def needs_of(command: str) -> tuple[str, ...]:
    """The extras of a command, including those of its group."""
    words = command.split()
    prefixes = (" ".join(words[:count]) for count in range(len(words), 0, -1))
    return next((NEEDS[prefix] for prefix in prefixes if prefix in NEEDS), ())


@contextmanager
def checked(command: str) -> Iterator[None]:
    """Run a command with its extras; a module of an extra that is absent is a MissingExtra."""
    require(command, *needs_of(command))
    try:
        yield
    except ModuleNotFoundError as error:
        raise translate(command, error) from error


def translate(command: str, error: ModuleNotFoundError) -> VeenError | ModuleNotFoundError:
    """The error of a module that belongs to an extra; any other absent module is a bug."""
    module = (error.name or "").partition(".")[0]
    for extra, modules in EXTRAS.items():
        if module in modules and find_spec(module) is None:
            return MissingExtra(f"{command} needs {modules[module]}: install veen[{extra}]")
    return error


def _missing(extra: str) -> list[str]:
    return [label for module, label in EXTRAS[extra].items() if find_spec(module) is None]


def _listed(labels: list[str]) -> str:
    *first, last = labels
    return f"{', '.join(first)} and {last}" if first else last
