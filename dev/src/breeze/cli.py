# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The commands of breeze. Each imports what it needs when it runs, so that ``--help`` is instant."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from breeze.k8s_commands import k8s_app
from breeze.release_commands import release_app
from breeze.testing_commands import testing_app

app = typer.Typer(
    name="breeze",
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Develop, test and show Airflow Resilience.",
)
app.add_typer(testing_app, name="testing")
app.add_typer(k8s_app, name="k8s")
app.add_typer(release_app, name="release-management")


@app.command()
def demo(
    upstream: Annotated[
        bool,
        typer.Option(
            "--upstream",
            help="Use the official KubernetesExecutor instead; exits with 0 however it copes.",
        ),
    ] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Leave everything running at the end.")] = False,
    kubeconfig: Annotated[
        Path | None,
        typer.Option(
            help="Use this cluster, which has no nodes of its own, and not the embedded one.",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    picture: Annotated[
        Path | None,
        typer.Option(help="Write what the terminal shows in the end into this file, as SVG.", dir_okay=False),
    ] = None,
) -> None:
    """Show a real Airflow losing worker pods, and finishing every task."""
    from demo.cli import run

    raise typer.Exit(run(upstream=upstream, keep=keep, kubeconfig=kubeconfig, picture=picture))


@app.command()
def benchmark(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", help="Which: by default all, see the contributor's guide."),
    ] = None,
    runs: Annotated[int, typer.Option(min=1, help="How often each executor is measured.")] = 5,
    size: Annotated[
        int | None, typer.Option(min=1, help="How many pods, instead of the benchmark's own number.")
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write every sample to this file.", dir_okay=False)
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A quick look: few pods, on the embedded API server.")
    ] = False,
    scale: Annotated[
        bool, typer.Option("--scale", help="With 100, 1,000 and 10,000 pods, and how each cost grows.")
    ] = False,
) -> None:
    """Measure our executor beside the official one, on the same control plane; nothing is a timed test."""
    from benchmarks.cli import Options, run
    from breeze.control_plane import control_plane_binaries, control_plane_possible

    options = Options(names=tuple(names or ()), runs=runs, size=size, quick=quick, scale=scale)
    binaries = control_plane_binaries() if not quick and control_plane_possible() else None
    raise typer.Exit(run(options, binaries, json_file))


@app.command("static-checks")
def static_checks(
    fix: Annotated[bool, typer.Option("--fix", help="Mend what can be mended mechanically.")] = False,
) -> None:
    """Check style, types, layers, generated files and the rules of the repository."""
    from breeze.static_checks import run_static_checks

    raise typer.Exit(run_static_checks(fix=fix))


@app.command("build-docs")
def build_docs(
    external_links: Annotated[
        bool,
        typer.Option("--external-links", help="Check links to other sites too, which takes a network."),
    ] = False,
) -> None:
    """Build the documentation site into site/; a warning, or a link that leads nowhere, is an error."""
    from breeze.docs import build_site

    raise typer.Exit(build_site(external_links=external_links))


@app.command()
def pictures(
    folder: Annotated[
        Path | None,
        typer.Argument(help="Where to put all of them. Default: those of the site, in docs/pictures/."),
    ] = None,
) -> None:
    """Take pictures of the pages in a real Chromium, light and dark, with and without data."""
    from pictures.take import take_all, take_for_site

    take_all(folder) if folder else take_for_site()


@app.command()
def lock(
    upgrade: Annotated[
        bool, typer.Option("--upgrade", help="Take the newest versions; otherwise only what has to change.")
    ] = False,
) -> None:
    """Write requirements.lock anew from the dependencies of the three projects."""
    from breeze.locking import write_lock

    raise typer.Exit(write_lock(upgrade=upgrade))


def main() -> None:
    """Run the command line."""
    app(prog_name="./breeze")
