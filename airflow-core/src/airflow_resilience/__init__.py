# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Infrastructure-aware execution for Apache Airflow, independent of any executor."""
