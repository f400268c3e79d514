# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""In the worker: a task whose worker is terminated does not report that as its own failure."""
