"""Are there known vulnerabilities in what is installed? ``make check`` asks pip-audit, if it can.

    python audit.py     0: none known, or nobody could be asked, which it says; 1: there are

pip-audit itself passes in silence where its service does not know a package, as behind a mirror of the index.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

FILES = tuple(f"requirements{name}.txt" for name in ("", "-core", "-cpu", "-dev"))
"""Between them every pinned package, whatever machine this is; a file within a file is not read."""
COMMAND = [sys.executable, "-m", "pip_audit", "--no-deps", "--disable-pip", "--format", "json"]
OPTIONS = ["--progress-spinner", "off", "--timeout", "10"]
PATIENCE = 300
"""Seconds for a service that is slow."""


def main(options: list[str]) -> int:
    """``options`` go on to pip-audit."""
    requirements = [argument for name in FILES for argument in ("-r", name)]
    try:
        run = subprocess.run(
            [*COMMAND, *OPTIONS, *requirements, *options], capture_output=True, text=True, timeout=PATIENCE
        )
    except subprocess.TimeoutExpired:
        return _not_made(f"no answer in {PATIENCE} s")
    if not run.stdout.strip():
        return _not_made((run.stderr.strip().splitlines() or ["pip-audit said nothing"])[-1])
    return report(json.loads(run.stdout)["dependencies"])


def report(packages: list[dict[str, Any]]) -> int:
    """Say what is known of each package, as pip-audit tells it."""
    asked = [package for package in packages if "skip_reason" not in package]
    unknown = [package["name"] for package in packages if "skip_reason" in package]
    if not asked:
        return _not_made(f"the service knew none of {len(packages)} packages")
    found = [(package, hole) for package in asked for hole in package["vulns"]]
    for package, hole in found:
        fixed = ", ".join(hole["fix_versions"]) or "no version"
        print(f"audit: {package['name']} {package['version']}: {hole['id']}, fixed in {fixed}")
    print(f"audit: {len(asked)} packages asked about, {len(found)} known vulnerabilities")
    if unknown:
        print(f"audit: NOT asked about, since the service does not know them: {', '.join(unknown)}")
    return 1 if found else 0


def _not_made(why: str) -> int:
    print(f"audit: NOT MADE, so vulnerabilities of dependencies are unknown: {why}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
