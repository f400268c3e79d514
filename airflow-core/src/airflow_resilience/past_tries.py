# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
The rows of tries that have ended, wherever the installed Airflow keeps them.

Up to Airflow 3.3 a task instance has one row, which gets another UUID with each try; the row of an ended try
is copied to the history. From 3.4 on each try has a row, and an ended try is archived.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow.models.taskinstance import TaskInstance
from sqlalchemy.orm import aliased
from sqlalchemy.sql.expression import ColumnElement

PastTry: Any
"""Model of a try that has ended."""

PAST_TRY_ID: Any
"""Column with the UUID that the task instance had in that try."""

IS_PAST: tuple[ColumnElement[bool], ...]
"""Conditions of a query of :data:`PastTry`."""

WITH_PAST_TRIES: Mapping[str, bool] = {"include_all_attempts": True}
"""
Execution options of a query of :data:`PastTry`. Airflow 3.4 hides them without; an earlier one ignores this.
"""

try:
    from airflow.models.taskinstancehistory import TaskInstanceHistory
except ModuleNotFoundError:
    PastTry = aliased(TaskInstance)
    PAST_TRY_ID = PastTry.id
    IS_PAST = (PastTry.working_set.is_(None),)
else:
    PastTry = TaskInstanceHistory
    PAST_TRY_ID = TaskInstanceHistory.task_instance_id
    IS_PAST = ()
