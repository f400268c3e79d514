# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

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
