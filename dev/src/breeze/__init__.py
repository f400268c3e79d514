# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""breeze: the command line for contributors, started by the ``breeze`` script at the root."""

from __future__ import annotations
