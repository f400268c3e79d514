# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Which commands of the README CI runs."""

from __future__ import annotations

import re
import runpy

from breeze.paths import ROOT

marked_commands = runpy.run_path(str(ROOT / "scripts" / "readme_commands.py"))["marked_commands"]

README = """\
```sh ci
# all of it
./breeze testing all   # takes a while

./breeze demo \\
  --keep
```
```sh
helm upgrade something
```
```sh ci
./breeze build-docs
```
"""


def test_only_marked_blocks_count_and_comments_do_not():
    commands = [" ".join(command.split()) for command in marked_commands(README)]
    assert commands == ["./breeze testing all", "./breeze demo --keep", "./breeze build-docs"]


def test_what_ci_has_run_before_is_in_the_readme():
    done = re.findall(r"--done '([^']+)'", (ROOT / ".ci" / "run").read_text())
    assert done
    assert set(done) < set(marked_commands((ROOT / "README.md").read_text()))
