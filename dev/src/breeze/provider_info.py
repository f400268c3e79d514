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

from breeze.paths import PROVIDER, PROVIDER_PACKAGE, ROOT, relative

PROVIDER_YAML = PROVIDER / "provider.yaml"
GENERATED = PROVIDER_PACKAGE / "get_provider_info.py"

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


def load_provider_yaml() -> dict[str, Any]:
    """Read provider.yaml."""
    content: dict[str, Any] = yaml.safe_load(PROVIDER_YAML.read_text())
    return content


def write_provider_info() -> None:
    """Write the generated module."""
    GENERATED.write_text(_rendered())


def check_provider_info() -> list[str]:
    """Find what is wrong with provider.yaml or with the module generated from it."""
    schema = json.loads(files("airflow").joinpath("provider_info.schema.json").read_text())
    problems = [
        f"{relative(PROVIDER_YAML)}: {error.json_path}: {error.message}"
        for error in jsonschema.Draft7Validator(schema).iter_errors(_provider_info())
    ]
    if GENERATED.read_text() != _rendered():
        problems.append(
            f"{relative(GENERATED)} does not follow from {relative(PROVIDER_YAML)}:"
            " run ./breeze release-management generate-provider-info"
        )
    return problems


def _provider_info() -> dict[str, Any]:
    content = load_provider_yaml()
    return {key: content[key] for key in _KEYS}


def _rendered() -> str:
    """Render the module, formatted as ruff wants it, so that the format check and this one agree."""
    return subprocess.run(
        [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(GENERATED), "-"],
        input=_TEMPLATE.format(info=_provider_info()),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
