# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Simulated nodes: kubelets that run the worker container of each of their pods as a local process."""
