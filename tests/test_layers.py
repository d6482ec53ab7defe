"""Imports point down, files and functions stay small, and nothing dangerous is imported.

Read from the syntax trees, so that imports for type checkers and inside functions count too. A
new module must be given a layer here, or its package already has one.
"""

from __future__ import annotations

import ast
import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("flightrec", "replay", "schemas")

LAYERS = {
    0: "schemas",
    1: "flightrec.errors",
    2: "flightrec.types",
    3: """flightrec.config flightrec.protocols flightrec.guard flightrec.environment
          flightrec.repository flightrec.rng flightrec.tree flightrec.source""",
    4: """flightrec.registry flightrec.trust flightrec.structure flightrec.describing
          flightrec.rebuilding flightrec.wrappers flightrec.needs flightrec.importing
          flightrec.factory flightrec.recorded flightrec.script flightrec.script_names
          flightrec.script_rules""",
    5: """flightrec.buffers flightrec.probes flightrec.detectors flightrec.triggers
          flightrec.sinks""",
    6: "flightrec.incident",
    7: "flightrec.stores flightrec.catalog flightrec.export flightrec.health",
    8: "flightrec.background flightrec.recording flightrec.recorder flightrec.watch",
    9: "flightrec flightrec.integrations flightrec.testing",
    10: "replay",
    11: "flightrec.preflight flightrec.cli flightrec.serve flightrec.__main__",
}
"""Layer -> packages and modules; a package stands for everything below it."""

RUN_ONLY = range(8, 10)
"""Layers that replay must not import: it has to work where nothing is recorded."""

MAY_IMPORT_REPLAY = ("flightrec.preflight", "flightrec.cli", "flightrec.serve")

LINES = 400
STATEMENTS = 40

FORBIDDEN_IMPORTS = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "marshal",
                     "shelve", "jsonpickle"}  # fmt: skip
FORBIDDEN_CALLS = {"eval", "exec", "__import__", "torch.load", "numpy.load", "np.load"}
EXEC_ALLOWED = {
    "flightrec.importing": "loads a trusted module's recorded source",
    "flightrec.script": "loads the definitions of a trusted script",
}

FORBIDDEN_TEXT = {
    "a path of one machine": r"/(?:work|root|home)/\w|/tmp/envs\b",
    "a name of nothing": r"(?:^|/)(?:utils?|helpers?|common|misc)\.py$",
}


def name_of(path: Path) -> str:
    """Return the dotted name of a file."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


MODULES = {
    name_of(path): path
    for package in PACKAGES
    for path in sorted((ROOT / package).rglob("*.py"))
    if "__pycache__" not in path.parts
}
TABLE = {name: layer for layer, names in LAYERS.items() for name in names.split()}


def layer_of(module: str) -> int | None:
    """Return the layer of a module or of the nearest package above it; None if in no table.

    `flightrec` itself stands for its `__init__` only.
    """
    name = module
    while name and (name != "flightrec" or module == "flightrec"):
        if name in TABLE:
            return TABLE[name]
        name = name.rpartition(".")[0]
    return None


@cache
def tree_of(module: str) -> ast.Module:
    """Parse a module."""
    return ast.parse(MODULES[module].read_text(encoding="utf-8"))


def targets(node: ast.AST) -> list[str]:
    """Return the modules that an import statement names, `from package import module` included.

    A package's version is no dependency: the package is there before all of its modules.
    """
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if not isinstance(node, ast.ImportFrom) or node.module is None:
        return []
    inner = [f"{node.module}.{alias.name}" for alias in node.names if alias.name != "__version__"]
    modules = [name for name in inner if name in MODULES]
    return modules if len(modules) == len(inner) else [node.module, *modules]


def imports(module: str) -> set[str]:
    """Return every module of ours that a module imports, wherever it does so."""
    named = {name for node in ast.walk(tree_of(module)) for name in targets(node)}
    return {name for name in named if name.partition(".")[0] in PACKAGES}


def for_type_checkers(node: ast.AST) -> bool:
    """Is this the block that only type checkers execute?"""
    return isinstance(node, ast.If) and ast.unparse(node.test) in (
        "TYPE_CHECKING",
        "typing.TYPE_CHECKING",
    )


def executed_imports(module: str) -> set[str]:
    """Return modules of ours that importing a module executes first."""
    found: set[str] = set()
    waiting: list[ast.AST] = [tree_of(module)]
    while waiting:
        node = waiting.pop()
        if for_type_checkers(node) or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        found.update(name for name in targets(node) if name in MODULES)
        waiting.extend(ast.iter_child_nodes(node))
    return found - {module}


def test_a_new_module_has_no_layer_and_a_new_plugin_has_that_of_its_package():
    assert layer_of("flightrec.new_thing") is None
    assert layer_of("flightrec.detectors.new_thing") == 5
    assert layer_of("replay.new_thing") == 10
    assert layer_of("flightrec") == 9


def test_imports_count_wherever_they_stand():
    tree = ast.parse(
        "if TYPE_CHECKING:\n    from flightrec.incident import reader\n"
        "def late():\n    import flightrec.recorder\n"
        "from flightrec import __version__, environment\n"
    )
    named = {name for node in ast.walk(tree) for name in targets(node)}
    assert named == {"flightrec.incident.reader", "flightrec.recorder", "flightrec.environment"}


def test_every_module_has_a_layer():
    missing = [module for module in MODULES if layer_of(module) is None]
    assert not missing, f"give these a layer in {Path(__file__).name}"


def test_table_names_nothing_that_is_not_there():
    packages = {path.parent for path in MODULES.values()}
    folders = {".".join(path.relative_to(ROOT).parts) for path in packages}
    planned = {"flightrec.serve", "flightrec.integrations", "flightrec.preflight"}
    assert set(TABLE) - set(MODULES) - folders <= planned


def test_imports_point_down():
    up = [
        f"{module} (layer {layer_of(module)}) imports {name} (layer {layer_of(name)})"
        for module in MODULES
        for name in sorted(imports(module))
        if (layer_of(name) or 0) > (layer_of(module) or 0)
    ]
    assert not up


def test_replay_needs_nothing_that_records():
    bad = [
        f"{module} imports {name}"
        for module in MODULES
        if module.startswith("replay")
        for name in sorted(imports(module))
        if layer_of(name) in RUN_ONLY
    ]
    assert not bad


def test_only_three_packages_import_replay():
    bad = [
        f"{module} imports {name}"
        for module in MODULES
        if module.startswith("flightrec") and not module.startswith(MAY_IMPORT_REPLAY)
        for name in sorted(imports(module))
        if name.partition(".")[0] == "replay"
    ]
    assert not bad


def test_no_import_goes_in_a_circle():
    done: set[str] = set()

    def visit(module, above):
        assert module not in above, " -> ".join([*above[above.index(module) :], module])
        if module not in done:
            for name in sorted(executed_imports(module)):
                visit(name, [*above, module])
            done.add(module)

    for module in MODULES:
        visit(module, [])


def test_imports_are_absolute():
    relative = [
        f"{module}:{node.lineno}"
        for module in MODULES
        for node in ast.walk(tree_of(module))
        if isinstance(node, ast.ImportFrom) and node.level
    ]
    assert not relative


def test_files_stay_small():
    counts = {name: len(path.read_text(encoding="utf-8").splitlines())
              for name, path in MODULES.items()}  # fmt: skip
    assert {name: count for name, count in counts.items() if count > LINES} == {}


def test_functions_stay_small():
    large = [
        f"{module}:{node.lineno} {node.name}"
        for module in MODULES
        for node in ast.walk(tree_of(module))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        and sum(isinstance(inner, ast.stmt) for inner in ast.walk(node)) - 1 > STATEMENTS
    ]
    assert not large


def test_every_module_says_what_it_is_for():
    silent = [
        module
        for module in MODULES
        if (tree := tree_of(module)).body
        and not (ast.get_docstring(tree) or "").partition("\n")[0].endswith((".", "?", "!"))
    ]
    assert not silent


def dangers(module: str):
    """Yield the places where a module could run code from data."""
    for node in ast.walk(tree_of(module)):
        for name in targets(node):
            if name.partition(".")[0] in FORBIDDEN_IMPORTS:
                yield f"{module}:{node.lineno} imports {name}"
        called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
        if called in FORBIDDEN_CALLS and not (called == "exec" and module in EXEC_ALLOWED):
            yield f"{module}:{node.lineno} calls {called}"


def test_nothing_runs_code_from_data():
    assert [text for module in MODULES for text in dangers(module)] == []


def tracked() -> list[str]:
    """Return the files of the repository, or of the folder where this is no clone."""
    words = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    try:
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
        names = done.stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        names = [str(path.relative_to(ROOT)) for path in MODULES.values()]
    return [name for name in names if (ROOT / name).is_file()]


@pytest.mark.parametrize("what", FORBIDDEN_TEXT)
def test_no_file_holds(what):
    pattern = re.compile(FORBIDDEN_TEXT[what])
    found = []
    for name in tracked():
        if name == f"tests/{Path(__file__).name}":
            continue
        if pattern.search(name):
            found.append(name)
        try:
            text = (ROOT / name).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        found += [f"{name}:{n}" for n, line in enumerate(text.splitlines(), 1)
                  if what != "a name of nothing" and pattern.search(line)]  # fmt: skip
    assert not found
