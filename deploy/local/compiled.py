"""Packages of the one set that come as source and want a C compiler: built where there is one, stood in for where not.

The stand-in imports and refuses to be used. Only what none of our tasks calls may stand here.
"""

import base64
import hashlib
import re
import zipfile
from pathlib import Path

# reasoning-gym imports this SAT solver at its start and uses it for one kind of puzzle, which no environment here has.
SOURCE_ONLY = "pycosat"

_CODE = '''"""Stands in for {name}, which this machine had no C compiler to build."""


def solve(*arguments, **options):
    raise RuntimeError("{name} was not built: install a C compiler and Python's headers, then run make setup again")


itersolve = solve
'''


def version_of(constraints: str) -> str:
    """The version that the one set of versions names."""
    found = re.search(rf"^{SOURCE_ONLY}==(\S+)$", constraints, re.M)
    if not found:
        raise ValueError(f"{SOURCE_ONLY} is not in deploy/constraints.txt")
    return found.group(1)


def stand_in_wheel(folder: Path, version: str) -> Path:
    """Writes a wheel that pip and uv take for the package."""
    info = f"{SOURCE_ONLY}-{version}.dist-info"
    files = {
        f"{SOURCE_ONLY}.py": _CODE.format(name=SOURCE_ONLY),
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {SOURCE_ONLY}\nVersion: {version}\nSummary: stand-in\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: forgerl\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = [f"{name},sha256={_digest(text)},{len(text.encode())}" for name, text in files.items()]
    files[f"{info}/RECORD"] = "\n".join([*record, f"{info}/RECORD,,", ""])
    folder.mkdir(parents=True, exist_ok=True)
    wheel = folder / f"{SOURCE_ONLY}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as out:
        for name, text in files.items():
            out.writestr(name, text)
    return wheel


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
