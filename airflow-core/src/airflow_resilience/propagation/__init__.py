# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Who is told why a task has failed: operators, callbacks, the next run's code, and listeners."""
