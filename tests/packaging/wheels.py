"""Builds the packages, and tests the wheel on every supported Python: `make wheels`.

It builds a source distribution and, for each Python, a wheel from it with warnings as errors. Each
wheel goes into a clean environment of its own, without extras, for the checks of smoke.py. On the
versions on which `make test` did not run, its unit tests and conformance cases follow, against the
installed wheel and without PySpark. twine checks the metadata of all packages.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src"
EXAMPLES = ROOT / "examples"
#: The modules in C.
EXTENSIONS = {"_core", "_rdkafka"}
VERSIONS = ("3.11", "3.12", "3.13")

#: The extras that the tests need. PySpark is left out on purpose.
EXTRAS = "kafka,pydantic,web"
TOOLS = (
    "pytest>=8", "pytest-xdist>=3.6", "hypothesis>=6.100", "httpx2>=2", "prometheus-client>=0.20",
    "schemathesis>=4",
)

#: Runs in an environment with the wheel and its base dependencies alone.
SMOKE = Path(__file__).with_name("smoke.py")
#: Checks the metadata of the packages, in an environment of its own.
TWINE = "twine>=6"


class Failure(Exception):
    """A package or its tests are wrong."""


def main() -> None:
    parser = argparse.ArgumentParser(description="Builds and tests the wheels.")
    parser.add_argument(
        "versions", nargs="*", default=VERSIONS, metavar="VERSION",
        help=f"Python versions (default: {', '.join(VERSIONS)})",
    )
    versions = parser.parse_args().versions
    lines = []
    with tempfile.TemporaryDirectory(prefix="penstock-wheels-") as scratch:
        folder = Path(scratch)
        sdist = build_sdist(folder)
        print(f"built {sdist.name}", flush=True)
        wheels = []
        for version in versions:
            began = time.monotonic()
            python = find_python(version)
            if python is None:
                lines.append(
                    f"SKIPPED Python {version}: there is no python{version} on the PATH or in pyenv"
                )
            else:
                print(f"---- Python {version}: {python}", flush=True)
                wheel = build_and_test(folder / version, python, sdist)
                wheels.append(wheel)
                lines.append(
                    f"passed  Python {version}: {wheel.name}, {time.monotonic() - began:.0f} s"
                )
        check_metadata(folder / "twine", [sdist, *wheels])
    print("\n".join(lines))
    if not any(line.startswith("passed") for line in lines):
        raise Failure("No supported Python was found.")


def find_python(version: str) -> Path | None:
    """The interpreter of a version: on the PATH, or installed by pyenv."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    found = [Path(sys.executable), *sorted(pyenv.glob(f"versions/{version}.*/bin/python"))]
    on_path = shutil.which(f"python{version}")
    if on_path is not None:
        found.insert(1, Path(on_path))
    asked = "import sys; print('%d.%d' % sys.version_info[:2], sys._base_executable)"
    for candidate in found:
        # A shim of pyenv exists for versions that are not active, and fails.
        ran = subprocess.run([candidate, "-c", asked], capture_output=True, text=True, check=False)
        if ran.returncode == 0 and ran.stdout.startswith(f"{version} "):
            return Path(ran.stdout.strip().partition(" ")[2])
    return None


def build_sdist(folder: Path) -> Path:
    """Build the source distribution from a copy of the tree, so that nothing is left behind."""
    tree = folder / "tree"
    tree.mkdir()
    for name in ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    shutil.copytree(
        SRC, tree / "src", ignore=shutil.ignore_patterns("*.so", "*.egg-info", "__pycache__")
    )
    shutil.copytree(EXAMPLES, tree / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    build = "import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])"
    run([sys.executable, "-c", build, folder], cwd=tree, quiet=True)
    sdist = next(folder.glob("penstock-*.tar.gz"))
    with tarfile.open(sdist) as archive:
        # The first part of each name is that of the archive.
        found = {name.partition("/")[2] for name in archive.getnames()}
    expect(
        found >= {
            *sources("*.py"), *sources("*.[ch]"), *sources("*.pyi"), *sources("*.template"),
        },
        sdist, found,
    )
    return sdist


def build_and_test(folder: Path, python: Path, sdist: Path) -> Path:
    """Build a wheel from the source distribution, install it, and run tests with it."""
    environment = folder / "venv"
    run([python, "-m", "venv", environment])
    own = environment / "bin" / "python"
    pip = [own, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    # Without pip's cache of built wheels: this one has to be built here.
    run([*pip, "wheel", "--no-deps", "--no-cache-dir", "--wheel-dir", folder, sdist],
        PENSTOCK_STRICT_BUILD="1")
    wheel = next(folder.glob("penstock-*.whl"))
    check_wheel(wheel)
    run([*pip, "install", wheel])
    run([own, SMOKE], cwd=folder)
    if folder.name == f"{sys.version_info.major}.{sys.version_info.minor}":
        return wheel
    run([*pip, "install", f"{wheel}[{EXTRAS}]", *TOOLS])
    run(
        [own, "-m", "pytest", "-q", "-n", "2", "--dist", "loadscope", "-p", "no:cacheprovider",
         "-m", "not full and not soak and not slow and not spark and not kafka",
         "tests/unit", "tests/conformance/test_conformance.py"],
        cwd=ROOT, PYTHONDONTWRITEBYTECODE="1",
    )
    return wheel


def check_metadata(environment: Path, packages: list[Path]) -> None:
    """Let twine check what a package index would refuse."""
    run([sys.executable, "-m", "venv", environment])
    own = environment / "bin" / "python"
    run([own, "-m", "pip", "--quiet", "--disable-pip-version-check", "install", TWINE])
    run([own, "-m", "twine", "check", "--strict", *packages])


def check_wheel(wheel: Path) -> None:
    """All Python files and stubs, the extensions, the examples, and nothing else."""
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    extensions = {name for name in names if name.endswith((".so", ".pyd"))}
    files = {
        *sources("*.py"), *sources("*.pyi"), *sources("*.html"), *sources("*.js"),
        *sources("*.css"), *sources("*.svg"), *sources("*.template"),
        "src/penstock/py.typed",
    }
    wanted = {name.removeprefix("src/") for name in files}
    expect(
        {Path(name).name.partition(".")[0] for name in extensions} == EXTENSIONS, wheel, extensions
    )
    wanted |= {
        f"penstock/_examples/{path.relative_to(EXAMPLES).as_posix()}"
        for pattern in ("*.py", "*.md") for path in EXAMPLES.rglob(pattern)
    }
    expect(names - extensions == wanted, wheel, (names - extensions) ^ wanted)
    expect("pytest_penstock.py" in names, wheel, names)
    expect("pyspark_penstock.py" in names, wheel, names)


def sources(pattern: str) -> set[str]:
    """Files of the tree, as paths from its root."""
    return {
        path.relative_to(ROOT).as_posix() for path in SRC.rglob(pattern)
        if ".egg-info" not in str(path)
    }


def expect(is_right: bool, package: Path, found: object) -> None:
    if not is_right:
        raise Failure(f"{package.name} has the wrong files: {found}")


def run(
    command: list[str | Path], *, cwd: Path = ROOT, quiet: bool = False, **environment: str
) -> None:
    # Neither the tree nor the environment that runs this script may be found by the new one.
    kept = {name: value for name, value in os.environ.items()
            if name not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")}
    ran = subprocess.run(
        command, cwd=cwd, env={**kept, **environment}, check=False, text=True,
        stdout=subprocess.PIPE if quiet else None, stderr=subprocess.STDOUT if quiet else None,
    )
    if ran.returncode:
        raise Failure(f"{ran.stdout or ''}failed: {' '.join(map(str, command))}")


if __name__ == "__main__":
    try:
        main()
    except Failure as failure:
        sys.exit(str(failure))
