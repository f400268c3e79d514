# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The host name of a simulated pod, for Airflow workers that all run on one machine."""

from __future__ import annotations

import os
import socket


def pod_hostname() -> str:
    """
    Return the name of the pod that this process runs in, as ``gethostname()`` does in a real pod.

    For ``[core] hostname_callable = cluster_lab.hostname.pod_hostname``. The machine's own name is returned
    in processes that are not in a simulated pod (scheduler, API server), which share this setting.
    """
    return os.environ.get("HOSTNAME") or socket.gethostname()
