"""Where the launcher is."""

from __future__ import annotations

import os
import shutil
import sysconfig
from typing import Iterator

NAME = "rally"


class NoBinary(FileNotFoundError):
    """The program ``rally`` is neither beside this package nor in PATH."""


def find_binary() -> str:
    """Returns the path of ``rally``: the one installed with this package, else the one in PATH, else RALLY_BIN.

    The one of the package comes first because it has the version of the package.
    """
    for directory in _directories():
        path = os.path.join(directory, NAME)
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    found = shutil.which(NAME) or os.environ.get("RALLY_BIN")
    if found is None:
        raise NoBinary("`rally` is not installed: it is neither beside this package nor in PATH, and RALLY_BIN does not name it")
    # Commands may run in another directory.
    return os.path.abspath(found)


def _directories() -> Iterator[str]:
    """Yields the directories in which installers put the scripts of a package at this place.

    Only those: a binary elsewhere may have another version than the package.
    """
    home = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
    for scheme in sysconfig.get_scheme_names():
        paths = sysconfig.get_paths(scheme)
        if home in (os.path.realpath(paths["purelib"]), os.path.realpath(paths["platlib"])):
            yield paths["scripts"]
    # `pip install --target`, and `--prefix`.
    yield os.path.join(home, "bin")
    if os.path.basename(home) == "site-packages":
        yield os.path.normpath(os.path.join(home, "..", "..", "..", "bin"))
