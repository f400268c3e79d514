# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The configuration, from where Airflow has it: environment variables, and airflow.cfg. Without Airflow."""

from __future__ import annotations

import os
from configparser import ConfigParser
from configparser import Error as ParserError
from pathlib import Path
from typing import Final

from airflow.providers.cncf.kubernetes_resilience.cli.errors import CommandError
from airflow.providers.cncf.kubernetes_resilience.get_provider_info import get_provider_info

GIVEN_UP_REASONS: Final = "worker_pod_pending_fatal_container_state_reasons"
GIVEN_UP_REASONS_OF_UPSTREAM: Final = (
    "CreateContainerConfigError,ErrImagePull,CreateContainerError,ImageInspectError,InvalidImageName"
)
"""The default of that option of the official executor. A contract test compares it."""


class Configuration:
    """
    Answers as Airflow's configuration does, for options without a deprecated name.

    Values from commands and secrets backends are for sensitive options only, of which none is asked for.

    :raises CommandError: if airflow.cfg is there and cannot be read; an empty path is the working directory

    .. seealso:: https://airflow.apache.org/docs/apache-airflow/stable/howto/set-config.html
    """

    def __init__(self) -> None:
        in_home = Path(os.environ.get("AIRFLOW_HOME", "~/airflow"), "airflow.cfg")
        self.file: Final = Path(_expand(os.environ.get("AIRFLOW_CONFIG", str(in_home))))
        self._parser = ConfigParser()
        self._parser.optionxform = str  # type: ignore[assignment,method-assign]
        self.has_file: Final = self._read()

    def _read(self) -> bool:
        try:
            # Not by the parser's own method, which takes a file that cannot be read for none.
            self._parser.read_string(self.file.read_text(encoding="utf-8"), str(self.file))
        except FileNotFoundError:
            return False
        except (OSError, ParserError, UnicodeDecodeError) as error:
            raise CommandError(f"{self.file}: {error}") from error
        return True

    def get(self, section: str, key: str, fallback: str = "") -> str:
        """
        Return what is configured, else our provider's default, else the fallback.

        :raises CommandError: if the value in airflow.cfg cannot be read
        """
        value = os.environ.get(f"AIRFLOW__{section.upper()}__{key.upper()}")
        try:
            value = self._parser.get(section, key, fallback=None) if value is None else value
        except ParserError as error:
            raise CommandError(f"{self.file}: {error}") from error
        if value is not None:
            return _expand(value)
        option = get_provider_info()["config"].get(section, {}).get("options", {}).get(key)
        return str(option["default"] or "") if option else fallback


def _expand(text: str) -> str:
    """Put in variables and home folders, as often as Airflow does."""
    expanded = os.path.expanduser(os.path.expandvars(text))  # noqa: PTH111 - an option need not be a path
    return text if expanded == text else _expand(expanded)
