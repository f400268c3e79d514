# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What templates find as ``macros.airflow_resilience``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jinja2 import pass_context

from airflow_resilience.propagation import reading

if TYPE_CHECKING:
    from jinja2.runtime import Context

    from airflow_resilience.context import ExecutionContext


@pass_context
def previous_failure(context: Context) -> ExecutionContext | None:
    """Return why the run before this one has ended; None if there was none, or if that is not known."""
    return reading.previous_failure(context.get_all())
