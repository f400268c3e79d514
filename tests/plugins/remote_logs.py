# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Remote logging as a deployer adds it: to a folder, where no pod overwrites the log of another one."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from airflow.config_templates import airflow_local_settings
from airflow.configuration import conf

from testbed.code_journal import folder_of_worker

FOLDER = folder_of_worker() / "remote-logs"


class RemoteLogs:
    """Has a folder for each try, in which files are called like pods."""

    processors = ()

    def upload(self, path, ti=None):
        """Copy the log of this pod."""
        copy = FOLDER / path / os.environ["HOSTNAME"]
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(Path(conf.get("logging", "base_log_folder"), path), copy)

    def read(self, relative_path, ti):
        """Return the names of the pods, and their logs."""
        files = sorted((FOLDER / relative_path).glob("*"))
        return [file.name for file in files], [file.read_text() for file in files]


LOGGING_CONFIG = airflow_local_settings.DEFAULT_LOGGING_CONFIG
REMOTE_TASK_LOG = RemoteLogs()
