# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""How long tests wait for another thread or process."""

from __future__ import annotations

WAIT = 120.0
"""Seconds: a hang, and not a slow machine. No test that passes waits for as long."""
