# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Where things are in the repository."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
#: Everything that is made here and may be thrown away at any time; ignored by git.
BUILD = ROOT / ".build"
#: uv as the ``./breeze`` wrapper fetched it.
UV = BUILD / "uv" / "bin" / "uv"

CORE = ROOT / "airflow-core"
PROVIDER = ROOT / "providers" / "cncf" / "kubernetes_resilience"
PROVIDER_PACKAGE = PROVIDER / "src" / "airflow" / "providers" / "cncf" / "kubernetes_resilience"
DEV = ROOT / "dev"
#: The projects that are published, in the order in which they depend on each other.
DISTRIBUTIONS = (CORE, PROVIDER)
