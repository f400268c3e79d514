# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The demo: every task of a real Airflow loses its first pod, and ends as it should."""

from __future__ import annotations

BUDGET = 3
"""The infrastructure budget of each task whose node is drained."""
