# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What a task instance's code is called in the journal. Imports nothing: light workers start with it."""

from __future__ import annotations


def code_name(dag_id: str, run_id: str, task_id: str, map_index: int) -> str:
    """Return the name under which the code of a task instance is recorded."""
    return f"{dag_id}/{run_id}/{task_id}[{map_index}]"
