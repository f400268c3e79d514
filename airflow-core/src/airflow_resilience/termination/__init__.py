# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Says in the worker what ends its task, and holds back ends that only its termination has caused."""
