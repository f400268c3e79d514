# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Passes the reason of a task's failure to operators, callbacks, the next run's code, and listeners."""
