# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""``breeze release-management``: what a release is made of."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from breeze.paths import ROOT

release_app = typer.Typer(no_args_is_help=True, help="Generate files and build distributions.")


@release_app.command("generate-provider-info")
def generate_provider_info() -> None:
    """Write get_provider_info.py from provider.yaml."""
    from breeze.provider_info import write_provider_info

    write_provider_info()


@release_app.command("prepare-provider-distributions")
def prepare_provider_distributions() -> None:
    """Build the distributions that are published into dist/, and try them in an environment of their own."""
    from breeze.distributions import prepare_distributions

    raise typer.Exit(prepare_distributions())


@release_app.command("prepare-in-place-provider")
def prepare_in_place_provider(
    official: Annotated[
        Path, typer.Option("--from", metavar="WHEEL", help="The official provider's wheel, as published.")
    ],
    output: Annotated[Path, typer.Option(metavar="DIR", help="Where to put the new one.")] = ROOT / "dist",
) -> None:
    """Make a wheel of the official provider in which KubernetesExecutor is ours."""
    from breeze import in_place

    # Programs are started at the root of the checkout.
    raise typer.Exit(in_place.prepare_in_place_provider(official.absolute(), output.absolute()))
