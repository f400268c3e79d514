# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""``airflow kubernetes-resilience build-provider-wheel``: the official provider with this executor."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path

from airflow.providers.cncf.kubernetes_resilience.cli.errors import CommandError
from airflow.providers.cncf.kubernetes_resilience.cli.in_place_wheel import WheelError, build_in_place_wheel


def build_provider_wheel(args: Namespace) -> int:
    """Make the wheel, and say where it is."""
    try:
        wheel = build_in_place_wheel(Path(args.official), Path(args.folder))
    except WheelError as error:
        raise CommandError(str(error)) from error
    sys.stdout.write(f"{wheel}\n")
    return 0
