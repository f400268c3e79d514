# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Infrastructure-aware execution for Apache Airflow, independent of any executor."""

from __future__ import annotations

from airflow_resilience.propagation.reading import current_termination, execution_context, previous_failure

__all__ = ["current_termination", "execution_context", "previous_failure"]
