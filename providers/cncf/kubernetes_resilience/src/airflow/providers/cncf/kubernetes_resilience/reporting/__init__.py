# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Summaries of the ledger for people, counted in the same way for pages and commands.

Functions take rows that were read, and return values and texts.
"""
