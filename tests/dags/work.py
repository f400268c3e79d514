# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The user's code in the system tests, which notes when it begins and when it has ended."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from airflow.providers.standard.triggers.file import FileTrigger
from airflow.sdk import BaseOperator, Context

from demo.code_journal import folder_of_worker, recorded, release_file

LONGEST_WORK = 180.0
"""Seconds after which a task ends although no test told it to."""


class Work(BaseOperator):
    """
    Works until the test says that it is enough.

    :param environment: what it needs to find among its environment variables
    :param number: any; to be mapped over
    """

    def __init__(
        self, *, environment: Mapping[str, str] | None = None, number: int = 0, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.environment = environment or {}
        self.number = number

    def execute(self, context: Context) -> None:
        with recorded(_name(context)):
            for key, value in self.environment.items():
                if os.environ.get(key) != value:
                    raise ValueError(f"{key} is {os.environ.get(key)!r} and not {value!r}")
            self.log.info("the task works")
            _work(context)


class WorkAfterWaiting(BaseOperator):
    """Waits in the triggerer until the test says that it is enough; another pod continues it."""

    def execute(self, context: Context) -> None:
        with recorded(_name(context)):
            trigger = FileTrigger(str(_released(context)), poke_interval=0.5)
        self.defer(trigger=trigger, method_name=self.resume.__name__)

    def resume(self, context: Context, event: Any = None) -> None:
        with recorded(_name(context), "resume"):
            self.log.info("the task goes on")


def _name(context: Context) -> str:
    ti: Any = context["ti"]
    return f"{ti.dag_id}.{ti.task_id}[{ti.map_index}]"


def _released(context: Context) -> Path:
    dag_id: str = context["ti"].dag_id
    return release_file(folder_of_worker() / dag_id)


def _work(context: Context) -> None:
    released = _released(context)
    deadline = time.monotonic() + LONGEST_WORK
    while not released.exists() and time.monotonic() < deadline:
        time.sleep(0.2)
