# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Run the commands of README.md that a reader can run in a checkout, so that none of them goes stale.

They are the lines of the fenced blocks that begin with three backticks and ``sh ci``.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

_README = Path(__file__).resolve().parents[1] / "README.md"
_BLOCK = re.compile(r"^```sh ci\n(?P<commands>.*?)^```$", re.MULTILINE | re.DOTALL)


def marked_commands(markdown: str) -> list[str]:
    """Find the commands, without comments, a line continued by a backslash joined to the next."""
    lines = (
        line.partition(" #")[0].strip()
        for block in _BLOCK.finditer(markdown)
        for line in block["commands"].replace("\\\n", " ").splitlines()
    )
    return [line for line in lines if line and not line.startswith("#")]


def main() -> int:
    """Run them one after the other, up to the first that fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--done", action="append", default=[], help="a command that need not run again")
    done = parser.parse_args().done
    commands = marked_commands(_README.read_text())
    if not commands:
        print("README.md marks no command for CI: begin its blocks with ```sh ci")
        return 1
    if missing := set(done) - set(commands):
        print(f"README.md does not mark for CI: {', '.join(missing)}")
        return 1
    for command in commands:
        if command in done:
            print(f"README: {command}: has run already")
            continue
        print(f"README: {command}", flush=True)
        code = subprocess.run(command, shell=True, cwd=_README.parent, check=False).returncode
        if code:
            print(f"README: {command}: failed with exit code {code}")
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
