# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Compares the columns that name a task instance, or one of its tries, with a key or with other columns."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

from airflow.models.taskinstancekey import TaskInstanceKey
from sqlalchemy.sql.expression import ColumnElement

names_of_try = attrgetter(*TaskInstanceKey._fields)
"""Returns the names of a try: columns of a model or a subquery, or values of a key or a row."""

names_of_task_instance = attrgetter("dag_id", "task_id", "run_id", "map_index")
"""Returns the names of a task instance in the same way; ``TaskInstanceKey.primary`` has this order too."""


def is_try(model: Any, key: Any) -> list[ColumnElement[bool]]:
    """Return the conditions with which a row of a model is about a try."""
    return [column == value for column, value in zip(names_of_try(model), names_of_try(key), strict=True)]


def is_task_instance(model: Any, key: Any) -> list[ColumnElement[bool]]:
    """Return the conditions with which a row of a model is about a task instance, in whichever try."""
    names = zip(names_of_task_instance(model), names_of_task_instance(key), strict=True)
    return [column == value for column, value in names]
