# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The pages in a real browser, on a real API server: for pictures of them, and for tests."""
