# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""``breeze k8s``: a real control plane with simulated nodes, to try things on."""

from __future__ import annotations

from typing import Annotated

import typer

k8s_app = typer.Typer(
    no_args_is_help=True, help="A real Kubernetes control plane on this machine, with simulated nodes."
)


@k8s_app.command()
def build() -> None:
    """Build the control plane, if that has not been done; a matter of minutes, on Debian only."""
    from breeze.k8s import build

    raise typer.Exit(build())


@k8s_app.command()
def start(nodes: Annotated[int, typer.Option(min=0, help="How many simulated nodes.")] = 3) -> None:
    """Start it in the background, and say where its kubeconfig is."""
    from breeze.k8s import start

    raise typer.Exit(start(nodes))


@k8s_app.command()
def stop() -> None:
    """Stop what start has started."""
    from breeze.k8s import stop

    raise typer.Exit(stop())


@k8s_app.command()
def status() -> None:
    """Say whether it runs, and show its nodes and pods; the exit code is 1 if it does not run."""
    from breeze.k8s import status

    raise typer.Exit(status())


@k8s_app.command()
def shell() -> None:
    """Open a shell in which kubectl, and everything else that reads KUBECONFIG, is about this cluster."""
    from breeze.k8s import shell

    raise typer.Exit(shell())
