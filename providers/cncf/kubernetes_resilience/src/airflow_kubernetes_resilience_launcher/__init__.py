# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Starts the commands that do not need Airflow, without starting Airflow.

They are modules of a provider, below ``airflow``. Before Python imports one of these it runs
``airflow/__init__.py``, and that takes a second: it reads the configuration and imports nine hundred modules.
So the package ``airflow`` is entered into ``sys.modules`` without being run, with the search path that it
gives itself, and what is below it is found wherever it is installed.

This package stands beside ``airflow``, since nothing below it can come first. Nothing else imports it.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec, module_from_spec
from pkgutil import extend_path


def main() -> int:
    """Run ``airflow-resilience``."""
    _enter_airflow()
    from airflow.providers.cncf.kubernetes_resilience.cli import quick  # noqa: PLC0415 - it is not to be run with Airflow

    return quick.main()


def kubectl_plugin() -> int:
    """Run ``kubectl airflow-explain``."""
    _enter_airflow()
    from airflow.providers.cncf.kubernetes_resilience.cli import quick  # noqa: PLC0415 - it is not to be run with Airflow

    return quick.run_plugin()


def _enter_airflow() -> None:
    """
    Enter ``airflow`` into ``sys.modules`` without running it, unless it is there already.

    :raises ModuleNotFoundError: if it is not installed
    """
    if "airflow" in sys.modules:
        return
    spec = find_spec("airflow")
    if spec is None:
        raise ModuleNotFoundError("No module named 'airflow'", name="airflow")
    airflow = module_from_spec(spec)
    # As its own first line does: providers may be installed in other places.
    airflow.__path__ = extend_path(airflow.__path__, "airflow")
    sys.modules["airflow"] = airflow
