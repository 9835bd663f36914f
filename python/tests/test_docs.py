"""The examples of the documents run, and print what their comments say."""

from __future__ import annotations

import ast
import asyncio
import inspect
import os
import re
from pathlib import Path
from typing import Dict, Iterator, Tuple

import pytest

ROOT = Path(__file__).parents[2]


def blocks(document: Path) -> Iterator[Tuple[int, str]]:
    """Yields the examples, with the numbers of their lines."""
    text = document.read_text(encoding="utf-8")
    for match in re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        yield text[: match.start()].count("\n") + 1, match[1]


@pytest.mark.parametrize("name", ["python/README.md", "docs/python.md"])
def test_examples(name: str, place: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    has_mpi4py = "RALLY_TEST_MPI4PY" in os.environ
    if has_mpi4py:
        monkeypatch.setenv("PYTHONPATH", os.environ["RALLY_TEST_MPI4PY"])
        monkeypatch.setenv("MPI4PY_LIBMPI", os.environ["RALLY_TEST_LIBMPI"])
    scope: Dict[str, object] = {}
    count = 0
    for line, block in blocks(ROOT / name):
        file = re.match(r"# (\S+\.py)\n", block)
        if file:
            (place / file[1]).write_text(block)
            continue
        if "pi.py" in block and not has_mpi4py:
            continue
        count += 1
        code = compile("\n" * line + block, name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        if code.co_flags & inspect.CO_COROUTINE:
            asyncio.run(eval(code, scope))
        else:
            exec(code, scope)
        expected = re.findall(r"# → (.*)", block)
        assert capfd.readouterr().out.splitlines() == expected, f"{name}:{line}"
    assert count > 0
