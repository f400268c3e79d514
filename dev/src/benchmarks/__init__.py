# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What the executor costs, beside what the official one costs: both in one run, on the same control plane."""
