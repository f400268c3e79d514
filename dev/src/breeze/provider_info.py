# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""get_provider_info.py, generated from provider.yaml.

Airflow reads the function in every process that loads providers, so it holds literals and parses nothing.
"""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.resources import files
from typing import Any

import jsonschema
import yaml

from breeze.paths import PROVIDER, PROVIDER_PACKAGE

_GENERATED = PROVIDER_PACKAGE / "get_provider_info.py"

#: What Airflow reads at run time. ``executors`` and ``cli`` go together: a provider that declares executors
#: but no ``cli`` makes each call of the airflow command warn.
_KEYS = ("package-name", "name", "description", "versions", "executors", "cli", "config")

_TEMPLATE = '''\
# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What Airflow reads about this provider.

Generated from provider.yaml: change that, then run ``./breeze release-management generate-provider-info``.
"""

from __future__ import annotations

from typing import Any


def get_provider_info() -> dict[str, Any]:
    """Give Airflow the contents of provider.yaml that it uses at run time."""
    return {info!r}
'''


def provider_info() -> dict[str, Any]:
    """Read from provider.yaml what Airflow uses."""
    content = yaml.safe_load((PROVIDER / "provider.yaml").read_text())
    return {key: content[key] for key in _KEYS}


def write_provider_info() -> None:
    """Write get_provider_info.py from provider.yaml."""
    _GENERATED.write_text(_rendered())


def check_provider_info() -> list[str]:
    """Find what is wrong with provider.yaml or with the module generated from it."""
    schema = json.loads(files("airflow").joinpath("provider_info.schema.json").read_text())
    errors = jsonschema.Draft7Validator(schema).iter_errors(provider_info())
    problems = [f"provider.yaml: {error.json_path}: {error.message}" for error in errors]
    if _GENERATED.read_text() != _rendered():
        problems.append("provider.yaml has changed: run ./breeze release-management generate-provider-info")
    return problems


def _rendered() -> str:
    """Render the module, formatted as ruff wants it, so that the format check and this one agree."""
    command = [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(_GENERATED), "-"]
    return subprocess.check_output(command, input=_TEMPLATE.format(info=provider_info()), text=True)
