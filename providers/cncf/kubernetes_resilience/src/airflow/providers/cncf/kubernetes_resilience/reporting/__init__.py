# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
What the ledger says, put together for people: one way to count, for pages and commands.

Nothing is read here: what was read goes in, values and texts come out.
"""
