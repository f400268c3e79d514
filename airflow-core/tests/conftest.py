# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from hypothesis import HealthCheck, settings

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

# A property takes as long as it takes: what fails on a busy machine only says that the machine was busy.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")
