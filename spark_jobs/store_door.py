"""The way to an object store, as something that travels; the secrets are those of each host."""

from __future__ import annotations

import os
from argparse import ArgumentParser
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Final, Self

from veen.objects.opened import Store
from veen.objects.port import StoreRefused
from veen.objects.settings import StoreSettings, credentials_in, settings_of
from veen.objects.store import open_probed, open_store, open_to_read

OPTIONS: Final = ("endpoint", "region", "addressing")
ACCEPT: Final = "accept_overwriting_store"


@dataclass(frozen=True, slots=True)
class StoreDoor:
    """Which store; ``keeps_conditions`` is what a probe has found, None before there was one."""

    settings: StoreSettings
    keeps_conditions: bool | None = None

    def to_read(self) -> Store:
        """The store without a probe: whoever only reads needs no right to write."""
        return _opened(self.settings)

    def to_write(self) -> Store:
        """The store, probed: once, on the driver."""
        return open_store(self.settings, credentials_in(os.environ))

    def probed(self) -> Self:
        """The door that travels to executors that write: they are told what the driver found."""
        return replace(self, keeps_conditions=bool(self.to_write().status.keeps_conditions))

    def to_put(self) -> Store:
        """The store to write to, as the driver has found it."""
        if self.keeps_conditions is None:
            raise StoreRefused("the store was not probed, and nothing is put there unseen")
        return _opened_to_put(self.settings, self.keeps_conditions)


def add_options(parser: ArgumentParser) -> None:
    """What every job is told of a store, beside its URL."""
    for name in OPTIONS:
        parser.add_argument(f"--{name}", help="of a store like S3")
    parser.add_argument(
        "--accept-overwriting-store",
        action="store_true",
        help="write also to a store without conditional writes",
    )


def door_of(url: str, given: Mapping[str, object]) -> StoreDoor:
    """A door by URL and whatever was given of the options; "true" is how Spark writes a flag."""
    found = {name: str(value) for name in OPTIONS if (value := given.get(name))}
    accept = str(given.get(ACCEPT, False)).lower() == "true"
    return StoreDoor(settings_of(url, accept_overwriting_store=accept, **found))


@cache
def _opened(settings: StoreSettings) -> Store:
    """One connection for all tasks of a process."""
    return open_to_read(settings, credentials_in(os.environ))


@cache
def _opened_to_put(settings: StoreSettings, keeps_conditions: bool) -> Store:
    return open_probed(settings, credentials_in(os.environ), keeps_conditions=keeps_conditions)
