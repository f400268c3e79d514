# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
What makes the official client's model objects cheap to copy.

Each of them, down to every environment variable, carries a client configuration of its own, which is used for
nothing but the validation of its fields. Building a worker pod copies some two dozen of these, each with
loggers, an SSL context's settings and all: more than half of the time that a pod takes to be built.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kubernetes.client import Configuration


class _SharedConfiguration(Configuration):  # type: ignore[misc] # the client comes without types
    """A configuration of which every copy is itself."""

    def __deepcopy__(self, memo: Any) -> _SharedConfiguration:
        return self


@contextmanager
def shared_model_configuration() -> Iterator[None]:
    """
    Let all model objects that are made meanwhile share one client configuration.

    It has the values of the default one, so that a client which a pod mutation hook makes is not another
    than usual. A default that such a hook sets stays.
    """
    before = Configuration._default
    shared = _SharedConfiguration()
    if before is not None:
        shared.__dict__.update(before.__dict__)
    Configuration.set_default(shared)
    try:
        yield
    finally:
        if Configuration._default is shared:
            Configuration._default = before
