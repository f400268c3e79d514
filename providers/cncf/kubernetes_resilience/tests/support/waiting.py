# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""How long tests wait for another thread or process."""

from __future__ import annotations

from airflow.providers.cncf.kubernetes_resilience.pods.thread.runtime import KubernetesRuntime

WAIT = 120.0
"""Seconds: a hang, and not a slow machine. No test that passes waits for as long."""


def wait_synced(runtime: KubernetesRuntime, timeout: float = WAIT) -> bool:
    """Wait until each informer has emitted its first list; return whether it has."""
    return all(informer.synced.wait(timeout) for informer in runtime._running().informers)
