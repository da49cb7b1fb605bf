"""Build and check the distributions of a release, and print what a person does with them.

    python -m scripts.release

Nothing leaves the machine. Exits with 1 if the tree is not that of a release, or a check fails.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import yaml

from arrester import __version__

REPOSITORY = Path(__file__).resolve().parent.parent
DIST = REPOSITORY / "dist"
UV = Path(sys.executable).with_name("uv")
#: Clean environments on each Python, and an installation of the release before.
TESTS = ["tests/test_wheel.py", "tests/upgrade", "-m", "long or not long", "-rs"]
NEXT = """
{files}

Version {version} is built and checked. What a person does:

1. Run what takes longer, and read docs/performance.md against the figures:
   make test-long && make test-api && make test-cluster && make smoke && make matrix && make helm &&
   make mutants && make chaos && make audit && make findings && make bench
2. Tag the commit:           git tag --sign v{version} && git push origin v{version}
3. Upload to PyPI:           twine upload dist/*
4. Build the image:          docker build --target server --tag REGISTRY/arrester-server:{version} .
   Push it:                  docker push REGISTRY/arrester-server:{version}
5. Package the chart:        helm package deploy/helm/arrester
   Push it:                  helm push arrester-{version}.tgz oci://REGISTRY
6. Publish the documentation: make docs, and copy build/site
7. Announce it with the section {version} of CHANGELOG.md
"""


def main() -> None:
    """Check the tree, build, check what was built, and print the rest."""
    problems = list(problems_of(REPOSITORY, __version__))
    if changed := run("git", "status", "--porcelain"):
        problems.append(f"files differ from the commit: {changed.split()[1]} and maybe others")
    if problems:
        sys.exit("\n".join(f"not a release: {problem}" for problem in problems))
    build()
    python = sys.executable
    subprocess.run([python, "-m", "twine", "check", "--strict", *files()], check=True)
    subprocess.run([python, "-m", "pytest", *TESTS], cwd=REPOSITORY, check=True)
    sums = (
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  dist/{path.name}" for path in files()
    )
    print(NEXT.format(files="\n".join(sums), version=__version__))


def problems_of(repository: Path, version: str) -> list[str]:
    """Return what the tree lacks for a release of this version."""
    found = []
    changelog = (repository / "CHANGELOG.md").read_text()
    [latest, *_] = re.findall(r"^## (.+)$", changelog, re.MULTILINE)
    if not re.fullmatch(rf"{re.escape(version)} - \d{{4}}-\d\d-\d\d", latest):
        found.append(f"CHANGELOG.md begins with {latest!r}, not with '{version} - DATE'")
    if not (repository / "tests" / "data" / version / "expected.json").exists():
        command = f"python -m tests.upgrade.freeze tests/data/{version}"
        found.append(f"there is no sample of what {version} writes: {command}")
    chart = yaml.safe_load((repository / "deploy/helm/arrester/Chart.yaml").read_text())
    for name in ("version", "appVersion"):
        if chart[name] != version:
            found.append(f"{name} of the Helm chart is {chart[name]}, not {version}")
    return found


def build() -> None:
    """Write the source distribution and the wheel into an empty dist/."""
    shutil.rmtree(DIST, ignore_errors=True)
    moment = run("git", "log", "-1", "--format=%ct").strip()
    options = ["--no-config", "--no-build-isolation", "--python", sys.executable]
    environment = os.environ | {"SOURCE_DATE_EPOCH": moment}
    subprocess.run(
        [UV, "build", *options, "--out-dir", DIST], cwd=REPOSITORY, env=environment, check=True
    )


def files() -> list[Path]:
    return sorted([*DIST.glob("*.whl"), *DIST.glob("*.tar.gz")])


def run(*command: str) -> str:
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    return done.stdout


if __name__ == "__main__":
    main()
