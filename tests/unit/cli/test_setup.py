"""What set-up does where a machine lacks something."""

import importlib.util
import subprocess
import sys

import pytest

from services.cli.supervisor.instance import CHECKOUT


@pytest.fixture
def compiled():
    spec = importlib.util.spec_from_file_location("compiled", CHECKOUT / "deploy" / "local" / "compiled.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_stand_in_is_a_wheel_that_imports_and_refuses_to_be_used(compiled, tmp_path):
    version = compiled.version_of((CHECKOUT / "deploy" / "constraints.txt").read_text())
    wheel = compiled.stand_in_wheel(tmp_path / "wheels", version)
    target = tmp_path / "target"
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--target", str(target), str(wheel)]
    subprocess.run(pip, check=True, capture_output=True)
    code = (
        f"import sys; sys.path.insert(0, {str(target)!r}); import pycosat, importlib.metadata as m\n"
        "print(m.version('pycosat'))\n"
        "try: pycosat.itersolve([[1]])\n"
        "except RuntimeError as error: print(error)\n"
    )
    said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.splitlines()
    assert said[0] == version
    assert said[1].startswith("pycosat was not built: install a C compiler")


def test_another_python_gets_one_clear_line():
    folder = CHECKOUT / "deploy" / "local"
    code = f"import sys; sys.path.insert(0, {str(folder)!r}); import setup; sys.version_info = (3, 12, 1); setup.main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert done.stderr.strip().startswith("setup: Python 3.11 is needed, this is") and "\n" not in done.stderr.strip()


def test_a_python_that_can_not_read_setup_gets_that_line_as_well(tmp_path):
    old, reached = tmp_path / "python2", tmp_path / "reached"
    claim = "import sys; sys.version_info, sys.version = (2, 7, 18), '2.7.18 (default)'; exec(sys.argv[1])"
    old.write_text(f'#!/bin/sh\n[ "$1" = -c ] || exec touch {reached}\nexec {sys.executable} -c "{claim}" "$2"\n')
    old.chmod(0o755)
    command = ["make", "--no-print-directory", f"PYTHON={old}", "setup"]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert done.returncode != 0 and not reached.exists()
    assert done.stderr.startswith("setup: Python 3.11 is needed, this is 2.7.18: make PYTHON=")
