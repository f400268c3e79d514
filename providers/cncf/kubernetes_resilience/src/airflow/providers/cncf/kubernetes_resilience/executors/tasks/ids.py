# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""UUIDs of task instances, as the metadata database has them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from airflow.models.taskinstance import TaskInstance


def typed_ids(ti_ids: Collection[str], column: Any = TaskInstance.id) -> list[Any]:
    """Return UUIDs as a column has them."""
    # It is a string up to Airflow 3.1 and a UUID from 3.2 on; a value of the other type would
    # either be refused or keep the database from using the primary key.
    try:
        kind = column.type.python_type
    except NotImplementedError:
        kind = str
    return [kind(ti_id) for ti_id in ti_ids]
