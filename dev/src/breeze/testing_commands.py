# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""``breeze testing``: the test suites, one by one or all of them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

testing_app = typer.Typer(no_args_is_help=True, help="Run tests.")

#: What breeze does not know itself goes to pytest: ``-k name``, ``-x``, ``--pdb``, a path.
_PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True}


#: What Airflow's own breeze calls the tests of providers: all there are, and one provider's. Ours takes the
#: place of cncf.kubernetes, and there is no other.
_TEST_TYPES = ("All", "Providers", "Providers[cncf.kubernetes]", "Providers[cncf.kubernetes_resilience]")


def _suite(name: str, extra: list[str]) -> None:
    from breeze.suites import run_suites

    raise typer.Exit(run_suites(name, extra=extra))


@testing_app.command("core-tests", context_settings=_PASS_ON)
def core_tests(context: typer.Context) -> None:
    """Test airflow-core: policy and ledger. Other arguments go to pytest."""
    _suite("core-tests", context.args)


@testing_app.command("providers-tests", context_settings=_PASS_ON)
def providers_tests(
    context: typer.Context,
    test_type: Annotated[
        str,
        typer.Option(
            help=f"In the words of Airflow's own breeze; each names our provider: {', '.join(_TEST_TYPES)}.",
        ),
    ] = _TEST_TYPES[0],
) -> None:
    """Test the provider: unit, integration and contract tests. Other arguments go to pytest."""
    if test_type not in _TEST_TYPES:
        raise typer.BadParameter(f"there are no tests {test_type!r}; there are {', '.join(_TEST_TYPES)}")
    _suite("providers-tests", context.args)


@testing_app.command("dev-tests", context_settings=_PASS_ON)
def dev_tests(context: typer.Context) -> None:
    """Test the contributor tools: the cluster lab and breeze. Other arguments go to pytest."""
    _suite("dev-tests", context.args)


@testing_app.command("system-tests", context_settings=_PASS_ON)
def system_tests(context: typer.Context) -> None:
    """Test a real Airflow with our executor on a cluster. Other arguments go to pytest."""
    _suite("system-tests", context.args)


@testing_app.command(context_settings=_PASS_ON)
def conformance(
    context: typer.Context,
    kubeconfig: Annotated[
        Path | None,
        typer.Option(
            help="Test this cluster, and not a control plane of our own.", exists=True, dir_okay=False
        ),
    ] = None,
) -> None:
    """Test on a real API server what dev-tests tests on the embedded one. Other arguments go to pytest."""
    from breeze.conformance import run_conformance

    raise typer.Exit(run_conformance(kubeconfig, context.args))


@testing_app.command()
def chaos(
    minutes: Annotated[float, typer.Option(min=0, help="For how long; 0: one round for each case.")] = 0,
    seed: Annotated[
        int | None, typer.Option(help="Of the first round: one that has failed fails again.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option(help="Only with so many relaunches allowed: 0, 1 or 3.")
    ] = None,
    budget: Annotated[
        int, typer.Option(help="With --limit: the infrastructure budget of running tasks, 0 or (with 1) 2.")
    ] = 0,
    outages: Annotated[
        bool, typer.Option("--outages", help="With --limit 1: a registry goes and comes.")
    ] = False,
) -> None:
    """Search for an interleaving of events that breaks a promise of the executor."""
    from breeze.chaos import run_chaos

    raise typer.Exit(run_chaos(minutes, seed, limit, budget, outages=outages))


@testing_app.command()
def compat(
    full: Annotated[
        bool,
        typer.Option(
            "--full",
            help="Every supported pair, not a covering few, and deployments: of each Airflow, with other"
            " executors, on the way here and back.",
        ),
    ] = False,
) -> None:
    """Check what we rely on in Airflow and the official provider against the supported versions."""
    from breeze.compat import check_versions

    raise typer.Exit(check_versions(full=full))


@testing_app.command(context_settings=_PASS_ON)
def mysql(context: typer.Context) -> None:
    """Run on MySQL what depends on the database. Other arguments go to pytest, and nothing else runs."""
    from breeze.mysql import check_mysql

    raise typer.Exit(check_mysql(context.args))


_KeepGoing = Annotated[
    bool, typer.Option("--keep-going", help="Run all there is, whatever fails; otherwise stop at the first.")
]


@testing_app.command()
def quick() -> None:
    """Run the static checks and the unit tests: four minutes."""
    from breeze.everything import quick_steps
    from breeze.steps import run_steps

    raise typer.Exit(run_steps("breeze testing quick", quick_steps()))


@testing_app.command("all")
def everything(keep_going: _KeepGoing = False) -> None:
    """Run what has to pass before a change is submitted: a quarter of an hour."""
    from breeze.everything import all_steps
    from breeze.steps import run_steps

    steps = all_steps(keep_going=keep_going)
    raise typer.Exit(run_steps("breeze testing all", steps, keep_going=keep_going))


@testing_app.command()
def release(
    resume: Annotated[
        bool, typer.Option("--resume", help="Leave out what has passed already on this commit.")
    ] = False,
    keep_going: _KeepGoing = False,
) -> None:
    """Run what is too long for every change, before a release: hours, with a report in .build/release.md."""
    from breeze.everything import release_steps
    from breeze.release_report import reported
    from breeze.steps import run_steps

    steps = reported(release_steps(keep_going=keep_going), resume=resume)
    raise typer.Exit(run_steps("breeze testing release", steps, keep_going=keep_going))
