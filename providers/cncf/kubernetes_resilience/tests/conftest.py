# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from kubernetes.client import Configuration

from cluster_lab.airflow_fixtures import (  # noqa: F401
    configure_airflow,
    impatient_session,
    migrated_database,
    pytest_collection_modifyitems,
    queued_ti,
    scheduler_job_id,
    session,
)

configure_airflow()

# Each object of the client's has a configuration, for nothing but the validation of its fields. To make and
# to copy them takes longer than all else in the launch of a test's first pod. All have the same one, which
# nobody may change.
Configuration.__deepcopy__ = lambda self, _: self
Configuration.set_default(Configuration())
