from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from importlib.metadata import metadata, version
from pathlib import Path

import pytest

import rally

SOURCE = Path(rally.__file__).parent


def say(*words: str) -> str:
    done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True)
    return done.stdout.decode()


def test_the_binaries_are_scripts_of_the_package() -> None:
    own = Path(sys.executable).parent
    assert rally.find_binary() == str(own / "rally")
    for binary in ("rally", "dbgr"):
        assert rally.__version__ in say(str(own / binary), "--version")
    assert say(str(own / "rally"), "--version") == say(sys.executable, "-m", "rally", "--version")


def test_the_demo_runs(place: Path) -> None:
    assert "3.14" in say(sys.executable, "-m", "rally", "demo")


def test_python_m_rally_has_the_exit_code(place: Path) -> None:
    done = subprocess.run([sys.executable, "-m", "rally", "run", "-n", "1", "sh", "-c", "exit 7"], stderr=subprocess.DEVNULL)
    assert done.returncode == 7


def test_a_package_without_binaries_looks_in_path(tmp_path: Path) -> None:
    copy = tmp_path / "package"
    shutil.copytree(SOURCE, copy / "rally")
    binary = tmp_path / "bin" / "rally"
    binary.parent.mkdir()
    binary.write_text("#!/bin/sh\n")
    binary.chmod(0o755)
    program = "import rally\ntry: print(rally.find_binary())\nexcept rally.NoBinary as e: print(e)"

    def found(**env: str) -> str:
        words = [sys.executable, "-c", program]
        done = subprocess.run(words, env={"PYTHONPATH": str(copy), **env}, stdout=subprocess.PIPE, check=True)
        return done.stdout.decode().strip()

    assert found(PATH=str(binary.parent)) == str(binary)
    assert found(PATH="/nonexistent", RALLY_BIN=str(binary)) == str(binary)
    assert "is not installed" in found(PATH="/nonexistent")


def test_metadata() -> None:
    assert version("rallypoint") == rally.__version__
    about = metadata("rallypoint")
    assert about["License-Expression"] == "MIT OR Apache-2.0"
    assert about.get_all("Requires-Dist") is None
    assert about.get_payload().startswith("# ")  # type: ignore[attr-defined]


def test_the_oldest_python_reads_it() -> None:
    for file in SOURCE.glob("*.py"):
        ast.parse(file.read_text(), feature_version=(3, 9))


def test_everything_public_is_documented() -> None:
    for name in rally.__all__:
        thing = getattr(rally, name)
        if callable(thing) and getattr(thing, "__module__", "").startswith("rally"):
            assert thing.__doc__, name


@pytest.mark.skipif(os.environ.get("RALLY_TEST_WHEEL") is None, reason="RALLY_TEST_WHEEL does not name the wheel")
def test_the_tags_are_those_of_the_binary() -> None:
    name = Path(os.environ["RALLY_TEST_WHEEL"]).name
    with open(rally.find_binary(), "rb") as file:
        is_dynamic = b"/ld-linux" in file.read(4096)
    assert ("-py3-none-linux_" in name) == is_dynamic
    assert ("musllinux" in name and "manylinux_2_17" in name) != is_dynamic
