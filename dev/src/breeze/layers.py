# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""A contract for import-linter: our modules against modules of others, below the top level.

import-linter's own "forbidden" contract takes an external package as a whole. Ours share the top level
``airflow`` with Airflow itself and with the official provider, so it is parts of it that have to be named.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, cast

from importlinter import Contract, ContractCheck, fields, output

if TYPE_CHECKING:
    from grimp import ImportGraph


class ForbiddenExternalContract(Contract):
    """No chain of imports leads from a source module, or from one below it, to a forbidden external module.

    Configured with ``source_modules`` and ``forbidden_modules``, which may be dotted names.
    """

    source_modules = fields.ListField(subfield=fields.StringField())
    forbidden_modules = fields.ListField(subfield=fields.StringField())

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:  # noqa: ARG002 - the interface
        """Look for chains.

        :param graph: all modules of ours, and those of others that they import.
        :param verbose: not used; there is nothing to tell while it runs.
        :raises ValueError: if a source module does not exist, since a contract about nothing is always kept.
        """
        sources = cast("list[str]", self.source_modules)
        if missing := [source for source in sources if source not in graph.modules]:
            raise ValueError(f"These modules do not exist: {', '.join(missing)}")
        importers = [module for source in sources for module in (source, *graph.find_descendants(source))]
        chains = [
            chain
            for importer, imported in product(sorted(importers), self._forbidden_in(graph))
            if (chain := graph.find_shortest_chain(importer=importer, imported=imported))
        ]
        return ContractCheck(kept=not chains, metadata={"chains": chains})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Print the chains that were found."""
        for chain in check.metadata["chains"]:
            output.print_error(" -> ".join(chain), bold=False)

    def _forbidden_in(self, graph: ImportGraph) -> list[str]:
        """Give the forbidden modules, and those below them, that are imported anywhere."""
        forbidden = cast("list[str]", self.forbidden_modules)
        return sorted(
            module
            for module in graph.modules
            if any(f"{module}.".startswith(f"{name}.") for name in forbidden)
        )
