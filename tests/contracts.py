"""Import contracts of our own, for import-linter."""

import ast
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import cast

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output

ROOT = Path(__file__).parents[1]


def texts(field: object) -> list[str]:
    """Return what pyproject.toml says for a list field; on an instance it is a plain list."""
    return cast("list[str]", field or [])


class PureContract(Contract):
    """Pure modules import neither libraries that do I/O nor modules that do.

    Direct imports suffice: whatever a pure module imports is pure itself. A module does I/O if it
    lies in one of ``io_packages``, or if the last word of its name is one of ``io_words``.
    """

    type_name = "pure"
    packages = fields.ListField(subfield=fields.StringField())
    io_packages = fields.ListField(subfield=fields.StringField())
    io_words = fields.ListField(subfield=fields.StringField())
    io_libraries = fields.ListField(subfield=fields.StringField())

    def does_io(self, module: str) -> bool:
        """Whether the name of *module*, or of its folder, says that it does I/O."""
        return does_io(module, packages=texts(self.io_packages), words=texts(self.io_words))

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:  # noqa: ARG002 -- import-linter's
        broken = [
            f"{module} -> {imported}"
            for module in sorted(graph.modules)
            if module.partition(".")[0] in texts(self.packages) and not self.does_io(module)
            for imported in sorted(graph.find_modules_directly_imported_by(module))
            if imported.partition(".")[0] in texts(self.io_libraries) or self.does_io(imported)
        ]
        return ContractCheck(kept=not broken, metadata={"broken": broken})

    def render_broken_contract(self, check: ContractCheck) -> None:
        for line in check.metadata["broken"]:
            output.print_error(line)


class UniqueClassContract(Contract):
    """No two modules define a public class of one name, but for those in ``allowed``."""

    type_name = "unique"
    packages = fields.ListField(subfield=fields.StringField())
    allowed = fields.ListField(subfield=fields.StringField(), required=False)

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:  # noqa: ARG002 -- import-linter's
        modules = [m for m in sorted(graph.modules) if m.partition(".")[0] in texts(self.packages)]
        defined: dict[str, list[str]] = defaultdict(list)
        for module in modules:
            for name in public_classes(module):
                defined[name].append(module)
        allowed = set(texts(self.allowed))
        repeated = {name: where for name, where in defined.items() if len(where) > 1}
        broken = [
            f"{name} is defined in {', '.join(where)}"
            for name, where in sorted(repeated.items())
            if name not in allowed
        ]
        broken += [
            f"{name} is allowed, but is not repeated" for name in sorted(allowed - set(repeated))
        ]
        return ContractCheck(kept=not broken, metadata={"broken": broken})

    def render_broken_contract(self, check: ContractCheck) -> None:
        for line in check.metadata["broken"]:
            output.print_error(line)


class BudgetContract(Contract):
    """No folder holds more than ``most_modules`` modules, and no module ``most_lines`` lines."""

    type_name = "budget"
    packages = fields.ListField(subfield=fields.StringField())
    most_modules = fields.IntegerField()
    most_lines = fields.IntegerField()

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:  # noqa: ARG002 -- import-linter's
        most_modules, most_lines = int(str(self.most_modules)), int(str(self.most_lines))
        files = [
            file
            for package in texts(self.packages)
            for file in sorted((ROOT / package).rglob("*.py"))
        ]
        written = [file for file in files if not file.name.endswith(("_pb2.py", "__init__.py"))]
        folders = Counter(file.parent.relative_to(ROOT) for file in written)
        lines = {file.relative_to(ROOT): line_count(file) for file in written}
        broken = [
            f"{folder}/ holds {count} modules; the budget is {most_modules}"
            for folder, count in folders.items()
            if count > most_modules
        ] + [
            f"{file} has {count} lines; the budget is {most_lines}"
            for file, count in lines.items()
            if count > most_lines
        ]
        return ContractCheck(kept=not broken, metadata={"broken": broken})

    def render_broken_contract(self, check: ContractCheck) -> None:
        for line in check.metadata["broken"]:
            output.print_error(line)


def does_io(module: str, *, packages: Iterable[str], words: Collection[str]) -> bool:
    """Whether *module* lies in one of *packages*, or its name ends in one of *words*."""
    folder = any(module == package or module.startswith(f"{package}.") for package in packages)
    return folder or module.rpartition(".")[2].rpartition("_")[2] in words


def line_count(file: Path) -> int:
    """Return how many lines *file* has."""
    return len(file.read_text(encoding="utf-8").splitlines())


def public_classes(module: str) -> Iterator[str]:
    """Yield the names of the public classes that a module of this repository defines."""
    file = ROOT / f"{module.replace('.', '/')}.py"
    if module.endswith("_pb2") or not file.is_file():  # generated, or a package
        return
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield node.name
