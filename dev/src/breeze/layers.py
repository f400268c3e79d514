# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""A contract for import-linter: our modules against modules of others, below the top level.

import-linter's own "forbidden" contract takes an external package as a whole. Ours share the top level
``airflow`` with Airflow itself and with the official provider, so it is parts of it that have to be named.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from importlinter import Contract, ContractCheck, fields, output

if TYPE_CHECKING:
    from grimp import ImportGraph


class ForbiddenExternalContract(Contract):
    """No chain of imports leads from a source module, or from one below it, to a forbidden external module.

    Configured with ``source_modules`` and ``forbidden_modules``, which may be dotted names, and with
    ``allowed_modules``: exceptions from the latter.
    """

    source_modules: Any = fields.ListField(subfield=fields.StringField())
    forbidden_modules: Any = fields.ListField(subfield=fields.StringField())
    allowed_modules: Any = fields.ListField(subfield=fields.StringField(), required=False)

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:  # noqa: ARG002 - the interface
        """Look for chains.

        :param graph: all modules of ours, and those of others that they import; a copy for this contract.
        :raises ValueError: if a source module does not exist, since a contract about nothing is always kept.
        """
        if missing := set(self.source_modules) - graph.modules:
            raise ValueError(f"These modules do not exist: {', '.join(missing)}")
        below = tuple(f"{name}." for name in self.forbidden_modules)
        forbidden = sorted(module for module in graph.modules if f"{module}.".startswith(below))
        # In the graph, a module of others ends below what its name shares with ours. Which one it is, the
        # line of the import says.
        allowed = tuple(f"from {name} import " for name in self.allowed_modules or ())
        for imported in forbidden:
            for importer in graph.find_modules_that_directly_import(imported):
                lines = graph.get_import_details(importer=importer, imported=imported)
                if lines and all(line["line_contents"].startswith(allowed) for line in lines):
                    graph.remove_import(importer=importer, imported=imported)
        chains = [
            chain
            for source in self.source_modules
            for importer in (source, *sorted(graph.find_descendants(source)))
            for imported in forbidden
            if (chain := graph.find_shortest_chain(importer=importer, imported=imported))
        ]
        return ContractCheck(kept=not chains, metadata={"chains": chains})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Print the chains that were found."""
        for chain in check.metadata["chains"]:
            output.print_error(" -> ".join(chain), bold=False)
