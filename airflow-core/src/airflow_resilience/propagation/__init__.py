# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Hands on why a task has failed: to operators, callbacks, the next run's code, and listeners."""
