"""``python -m rally``: the launcher itself, with these arguments."""

from __future__ import annotations

import os
import sys

from ._binary import NoBinary, find_binary


def main() -> None:
    try:
        binary = find_binary()
    except NoBinary as error:
        sys.exit(f"error: {error}")
    os.execv(binary, [binary, *sys.argv[1:]])


if __name__ == "__main__":
    main()
