# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Wraps the methods by which Airflow runs an operator."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from airflow.sdk import BaseOperator

_METHODS = ("execute", "resume_execution")
"""Methods of an operator that Airflow calls: the second one after a deferral."""


def wrap_methods(task: BaseOperator, run: Callable[..., Any]) -> None:
    """
    Replace the methods by which Airflow runs an operator with a function, for one call.

    The operator's code meets itself unchanged: the operator may pickle or copy itself, or call its own
    ``execute()``.

    :param task: the operator, in the copy that is about to be executed
    :param run: called with the method and its arguments
    """
    originals = {name: vars(task).get(name) for name in _METHODS}

    def run_once(method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        for name, original in originals.items():
            if original is None:
                delattr(task, name)
            else:
                setattr(task, name, original)
        return run(method, *args, **kwargs)

    for name in _METHODS:
        setattr(task, name, functools.partial(run_once, getattr(task, name)))
