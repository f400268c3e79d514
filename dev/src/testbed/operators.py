# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Operators of several DAGs of the system tests, which most of their workers need not import."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from airflow.providers.standard.operators.bash import BashOperator
from airflow.providers.standard.triggers.temporal import TimeDeltaTrigger
from airflow.sdk import BaseOperator, Context

from testbed.code_journal import FOLDER_VARIABLE, recorded
from testbed.work import code_of, work

_UNTIL_RELEASED = f"until [ -e ${FOLDER_VARIABLE}/{{{{ dag.dag_id }}}}/release ]; do sleep 0.2; done"
_GIVEN = {"number": 7}


class BashWork(BashOperator):
    """Works in a program of its own, which ``on_kill`` ends, until the test says that it is enough."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(bash_command=_UNTIL_RELEASED, **kwargs)

    def execute(self, context: Context) -> Any:
        """Work."""
        with recorded(code_of(context)):
            return super().execute(context)


class WorkWhenResumed(BaseOperator):
    """
    Works in the pod that continues it, if that is given what the first one has left for it.

    :param after: how long it waits in the triggerer
    """

    def __init__(self, *, after: timedelta = timedelta(0), **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.after = after

    def execute(self, context: Context) -> None:
        """Hand over to the triggerer."""
        with recorded(code_of(context)):
            trigger = TimeDeltaTrigger(self.after)
        self.defer(trigger=trigger, method_name=self.resume.__name__, kwargs={"given": _GIVEN})

    def resume(self, context: Context, event: Any = None, given: Any = None) -> None:
        """Work."""
        with recorded(code_of(context)):
            if not isinstance(event, datetime) or given != _GIVEN:
                raise ValueError(f"the event is {event!r}, and {given!r} was given")
            work(context)
