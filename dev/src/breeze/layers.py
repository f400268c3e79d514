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

    Configured with ``source_modules`` and ``forbidden_modules``, which may be dotted names, and with
    ``allowed_modules``: exceptions from the latter.
    """

    source_modules = fields.ListField(subfield=fields.StringField())
    forbidden_modules = fields.ListField(subfield=fields.StringField())
    allowed_modules = fields.ListField(subfield=fields.StringField(), required=False)

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:  # noqa: ARG002 - the interface
        """Look for chains.

        :param graph: all modules of ours, and those of others that they import.
        :param verbose: not used; there is nothing to tell while it runs.
        :raises ValueError: if a source module does not exist, since a contract about nothing is always kept.
        """
        sources = cast("list[str]", self.source_modules)
        if missing := [source for source in sources if source not in graph.modules]:
            raise ValueError(f"These modules do not exist: {', '.join(missing)}")
        self._drop_allowed(graph)
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

    def _drop_allowed(self, graph: ImportGraph) -> None:
        """Take the imports of allowed modules out of the graph, which import-linter has copied for this.

        In it, a module of others ends below what its name shares with ours. Which one it is says the line.
        """
        allowed = cast("list[str] | None", self.allowed_modules) or []
        beginnings = tuple(f"from {name} import " for name in allowed)
        for imported in self._forbidden_in(graph):
            for importer in graph.find_modules_that_directly_import(imported):
                details = graph.get_import_details(importer=importer, imported=imported)
                if details and all(detail["line_contents"].startswith(beginnings) for detail in details):
                    graph.remove_import(importer=importer, imported=imported)
