# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""``python -m breeze``, what the ``./breeze`` wrapper starts."""

from __future__ import annotations

from breeze.cli import main

main()
