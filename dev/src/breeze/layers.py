# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""A contract for import-linter about modules of other distributions.

import-linter's own "forbidden" contract takes an external package as a whole. Ours share the top level
``airflow`` with Airflow itself and with the official provider, so it is parts of it that have to be named.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from importlinter import ContractCheck, fields
from importlinter.contracts.forbidden import ForbiddenContract

if TYPE_CHECKING:
    from grimp import ImportGraph


class ForbiddenExternalContract(ForbiddenContract):
    """The forbidden modules may be parts of external packages; ``allowed_modules`` are exceptions."""

    allowed_modules: Any = fields.ListField(subfield=fields.StringField(), required=False)

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Leave out imports of what is allowed, and look for chains."""
        # In the graph, a module of others ends below what its name shares with ours. Which one it is, the
        # line of the import says.
        allowed = tuple(f"from {name} import " for name in self.allowed_modules or ())
        for imported in {name.rpartition(".")[0] for name in self.allowed_modules or ()}:
            for importer in graph.find_modules_that_directly_import(imported):
                lines = graph.get_import_details(importer=importer, imported=imported)
                if all(line["line_contents"].startswith(allowed) for line in lines):
                    graph.remove_import(importer=importer, imported=imported)
        return super().check(graph, verbose)

    def _validate_external_forbidden_modules(self, external_forbidden_modules: Any) -> None:
        """Take them as they are."""
