# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The commands as Airflow calls them. The code of a command is imported at its run."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from functools import partial

from airflow.cli.cli_config import lazy_load_command
from airflow.exceptions import AirflowConfigException
from airflow.utils.cli import suppress_logs_and_warning
from sqlalchemy.exc import SQLAlchemyError

from airflow.providers.cncf.kubernetes_resilience.cli.errors import refuse, run_command


def _command(path: str) -> Callable[[Namespace], None]:
    """
    Make a command from a function of this package that returns an exit code.

    An error that the user can correct is one sentence on stderr, without a traceback. Before Airflow 3.3, log
    lines went to stdout, between the results. These lines are suppressed; ``--verbose`` shows them.
    """
    function = lazy_load_command(f"airflow.providers.cncf.kubernetes_resilience.cli.{path}")

    def answer(args: Namespace) -> int:
        try:
            code: int = function(args)
        except AirflowConfigException as error:
            code = refuse(str(error))
        except SQLAlchemyError as error:
            # The SQL statement does not help a user who forgot to migrate.
            cause = getattr(error, "orig", None) or error
            code = refuse(f"the metadata database does not answer as it should: {cause}")
        return code

    def run(args: Namespace) -> None:
        if code := run_command(partial(answer, args)):
            raise SystemExit(code)

    return suppress_logs_and_warning(run)


lint = _command("answers.lint")
show = _command("policy_commands.show")
explain = _command("explain_command.explain")
history = _command("history_command.history")
report = _command("report_command.report")
generate_dag_yaml = _command("dag_yaml_command.generate_dag_yaml")
build_provider_wheel = _command("in_place_wheel.build_provider_wheel")
