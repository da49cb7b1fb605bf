"""Which module may import which, and that the make targets are listed."""

from __future__ import annotations

import ast
import gc
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import grimp
import pytest

from scripts import package_graph
from tests.services import REPOSITORY

OURS = ("arrester", "tests")
SERVER_ONLY = ("celery", "django", "psycopg", "redis", "rest_framework")
PRODUCT = ("agents", "cli", "controlplane", "dashboard", "domain")
EXECUTOR_MAY_IMPORT = {*sys.stdlib_module_names, "pyarrow", "pyspark"}


@pytest.fixture(autouse=True)
def no_garbage_collection() -> Iterator[None]:
    """CPython 3.11 raises SystemError if a finalizer runs while it makes a syntax tree."""
    gc.disable()
    yield
    gc.enable()


def modules(folder: str) -> list[Path]:
    return sorted(REPOSITORY.joinpath(folder).rglob("*.py"))


def imports(module: Path) -> Iterator[str]:
    """Yield the full names of what `module` imports, at any depth of the code."""
    package = ("arrester", *module.parent.relative_to(REPOSITORY).parts)
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            yield ".".join([*base, *([node.module] if node.module else [])])


def top(name: str) -> str:
    return name.partition(".")[0]


def test_the_import_contracts_hold() -> None:
    done = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def test_agents_share_the_domain_with_the_server_and_nothing_else() -> None:
    strays = {
        (str(module.relative_to(REPOSITORY)), name)
        for module in modules("agents")
        for name in imports(module)
        if top(name) in OURS
        if not name.startswith(("arrester.agents", "arrester.domain"))
    }
    assert strays == set()


#: Attributes and modules of PySpark that lead to objects of the JVM.
JVM_ATTRIBUTES = {
    *("_jvm", "_jdf", "_jc", "_jsc", "_jsparkSession", "_gateway", "_origin", "_desc", "_cause"),
    *("_jreader", "_jwrite", "_jsq"),
}
JVM_MODULES = (
    *("py4j", "pyspark.sql.classic", "pyspark.errors.exceptions", "pyspark.java_gateway"),
    "arrester.agents.spark.jvm.classes",
)
#: Other private attributes and modules of PySpark.
PRIVATE_ATTRIBUTES = {"_python_includes", "_pickled_broadcast_vars", "_temp_dir"}
PRIVATE_MODULES = ("pyspark.sql.connect", "pyspark.sql.pandas")


def test_only_agents_spark_uses_the_private_api_of_spark() -> None:
    # Executors have no package of ours but their own, which needs Spark's Arrow types.
    allowed = {
        (f"agents/worker/{name}.py", "pyspark.sql.pandas.types")
        for name in ("arrow_types", "map_in_arrow")
    }
    strays = {
        (str(module.relative_to(REPOSITORY)), name)
        for module in modules("agents")
        if not module.is_relative_to(REPOSITORY / "agents/spark")
        for name in (*imports(module), *attributes(module))
        if name in PRIVATE_ATTRIBUTES or name.startswith(PRIVATE_MODULES)
    }
    assert strays == allowed


def test_only_agents_spark_jvm_touches_the_jvm() -> None:
    strays = {
        (str(module.relative_to(REPOSITORY)), name)
        for module in modules("agents")
        if not module.is_relative_to(REPOSITORY / "agents/spark/jvm")
        for name in (*imports(module), *attributes(module))
        if name in JVM_ATTRIBUTES or name.startswith(JVM_MODULES)
    }
    assert strays == set()


def attributes(module: Path) -> Iterator[str]:
    """Yield the names of all attributes that `module` reads of others than itself."""
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Attribute):
            own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            if not own:
                yield node.attr


def test_what_is_shipped_to_executors_imports_what_they_have() -> None:
    strays = {
        (str(module.relative_to(REPOSITORY)), name)
        for module in modules("agents/worker")
        for name in imports(module)
        if top(name) not in EXECUTOR_MAY_IMPORT and not name.startswith("arrester.agents.worker")
    }
    # Dead letters in a topic are the one exception, within functions; a probe looks for it first.
    assert {stray for stray in strays if top(stray[1]) != "confluent_kafka"} == set()
    using_kafka = {f"agents/worker/kafka_{name}.py" for name in ("dead_letters", "reader", "topic")}
    assert {module for module, _ in strays} <= using_kafka


def test_what_a_package_promises_is_there() -> None:
    packages = [path for folder in PRODUCT for path in modules(folder)]
    strays = {
        (str(module.relative_to(REPOSITORY)), name)
        for module in packages
        for name in promised(module) - bound(module)
    }
    assert strays == set()


def promised(module: Path) -> set[str]:
    """Return the names in a module's `__all__`."""
    for node in ast.parse(module.read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return set(ast.literal_eval(node.value))
    return set()


def bound(module: Path) -> set[str]:
    """Return the names that a module imports or defines at its top, and its submodules."""
    names = {each.stem for each in module.parent.glob("*.py")}
    for node in ast.parse(module.read_text()).body:
        match node:
            case ast.Import() | ast.ImportFrom():
                names |= {alias.asname or alias.name for alias in node.names}
            case ast.FunctionDef() | ast.ClassDef():
                names.add(node.name)
            case ast.Assign():
                names |= {ast.unparse(target) for target in node.targets}
            case ast.AnnAssign():
                names.add(ast.unparse(node.target))
    return names


def test_migrations_import_nothing_of_ours() -> None:
    strays = {
        (module.name, name)
        for module in modules("migrations")
        for name in imports(module)
        if top(name) in OURS and not name.startswith("arrester.migrations")
    }
    assert strays == set()


def test_agents_load_without_the_server() -> None:
    """In a fresh interpreter; only an agent with REDIS_URL needs redis."""
    names = [
        "arrester."
        + ".".join(module.relative_to(REPOSITORY).with_suffix("").parts).removesuffix(".__init__")
        for module in [*modules("agents"), *modules("domain")]
    ]
    block = f"import sys; sys.modules.update(dict.fromkeys({SERVER_ONLY}))"
    subprocess.run(
        [sys.executable, "-c", f"{block}; import {', '.join(names)}"], cwd=REPOSITORY, check=True
    )


def test_the_server_loads_without_spark() -> None:
    block = "import sys; sys.modules.update(dict.fromkeys(['pyspark', 'pyarrow', 'py4j']))"
    code = (
        f"{block}; import django; django.setup();"
        " import arrester.controlplane.celery, arrester.controlplane.urls"
    )
    subprocess.run(
        [sys.executable, "-c", f"import os; os.environ['DJANGO_SETTINGS_MODULE']="
         f"'arrester.controlplane.settings'; {code}"],
        cwd=REPOSITORY,
        check=True,
    )  # fmt: skip


def test_ci_runs_lint_test_and_smoke() -> None:
    lines = (REPOSITORY / ".ci/run").read_text().splitlines()
    assert "set -euo pipefail" in lines
    targets = [line.split()[1] for line in lines if line.startswith("make ")]
    assert targets == [".venv/.stamp", "lint", "smoke-venvs", "test", "smoke"]
    # What runs beside the tests is waited for, and its failure is that of the run.
    assert [line for line in lines if line.startswith("wait ")] == [
        "wait $lint || { cat build/lint.log; exit 1; }",
        "wait $venvs || { cat build/smoke-venvs.log; exit 1; }",
    ]


@pytest.mark.parametrize(
    "tool",
    [
        "ruff format --check",
        "ruff check",
        "mypy",
        "lint-imports",
        "makemigrations --check",
        "check_language",
    ],
)
def test_lint_is_everything_but_tests(tool: str) -> None:
    makefile = (REPOSITORY / "Makefile").read_text()
    recipe = makefile.partition("\nlint:")[2].partition("\n\n")[0]
    assert tool in recipe


@pytest.mark.parametrize(
    "name",
    [
        *("agents", "demo", "dev", "kafka", "server", "tools"),
        *("spark-3.5", "spark-4.0", "spark-4.1", "spark-4.2"),
    ],
)
def test_requirements_are_hashed_and_name_no_host(name: str) -> None:
    text = (REPOSITORY / "requirements" / f"{name}.txt").read_text()
    pins, hashes = text.count("=="), text.count("--hash=sha256:")
    assert 0 < pins <= hashes
    assert "://" not in text
    assert "--index" not in text
    assert "--find-links" not in text


def test_no_module_imports_itself_through_others() -> None:
    graph = grimp.build_graph("arrester")
    imports = {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    TopologicalSorter(imports).prepare()  # raises CycleError


#: Lines of code without docstrings, comments and empty lines.
MODULE_LINES, FUNCTION_LINES, MODULES_OF_A_FOLDER = 300, 40, 14
LARGE_MODULES = {
    "agents/agent.py": "one public class",
    "agents/definition/builder.py": "one public class",
    "domain/error_policy/setting_definitions.py": "a table",
}
LARGE_FUNCTIONS = {"evolve_task": "one case for each kind of event"}
LARGE_FOLDERS = {
    "agents/worker": "executors get it as one flat package, together with modules of the domain",
    "dashboard/pages": "one module for each page",
}


def test_modules_functions_and_folders_are_small() -> None:
    modules_by_folder: Counter[str] = Counter()
    large_modules, large_functions = set(), set()
    for module in [module for folder in PRODUCT for module in modules(folder)]:
        if module.name != "__init__.py":
            modules_by_folder[str(module.parent.relative_to(REPOSITORY))] += 1
        tree, text = ast.parse(module.read_text()), module.read_text().splitlines()
        nodes = list(ast.walk(tree))
        code = {
            number
            for number, line in enumerate(text, start=1)
            if line.strip() and not line.strip().startswith("#")
        } - docstring_lines(nodes)
        if len(code) > MODULE_LINES:
            large_modules.add(str(module.relative_to(REPOSITORY)))
        for node in nodes:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                body = range(node.body[0].lineno, (node.end_lineno or 0) + 1)
                if len(code.intersection(body)) > FUNCTION_LINES:
                    large_functions.add(node.name)
    large_folders = {
        name for name, count in modules_by_folder.items() if count > MODULES_OF_A_FOLDER
    }
    assert large_modules == set(LARGE_MODULES)
    assert large_functions == set(LARGE_FUNCTIONS)
    assert large_folders == set(LARGE_FOLDERS)


def docstring_lines(nodes: list[ast.AST]) -> set[int]:
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = [
        node.body[0] for node in nodes if isinstance(node, kinds) and ast.get_docstring(node)
    ]
    return {line for each in docstrings for line in range(each.lineno, (each.end_lineno or 0) + 1)}


def test_the_pictures_of_the_packages_have_all_imports() -> None:
    """`make packages` draws them."""
    for file, text in package_graph.drawn().items():
        assert (package_graph.FOLDER / file).read_text() == text, file


def test_an_import_that_follows_from_others_is_not_drawn() -> None:
    graph = {"a": {"b", "c"}, "b": {"c"}, "c": set[str]()}
    assert package_graph.direct(graph) == {"a": {"b"}, "b": {"c"}, "c": set()}


def test_every_make_target_is_listed() -> None:
    targets = (
        "help up demo test test-long test-parts test-lakes test-cluster test-api trips packages"
        " conformance smoke matrix mutants chaos chaos-fold truth audit sbom helm release"
        " fuzz findings docs lint check bench screenshots requirements clean"
    )
    listed = subprocess.run(["make", "help"], cwd=REPOSITORY, capture_output=True, text=True)
    names = [line.split()[1] for line in listed.stdout.splitlines() if line.startswith("make ")]
    assert " ".join(names) == targets


def test_modules_that_make_runs_need_no_settings_to_be_imported() -> None:
    """The suite does not run them, and pytest sets up Django before it imports one."""
    makefile = (REPOSITORY / "Makefile").read_text()
    names = set(re.findall(r"-m ((?:tests|scripts|benchmarks)\b[\w.]*)", makefile))
    # It has packages of its own.
    names.remove("tests.fuzz_wire_decoder")
    packages = {name for name in names if (REPOSITORY / name.replace(".", "/")).is_dir()}
    modules = [f"{name}.__main__" if name in packages else name for name in sorted(names)]
    assert "tests.chaos.__main__" in modules
    environment = {key: value for key, value in os.environ.items() if not key.startswith("DJANGO")}
    command = [sys.executable, "-c", f"import {', '.join(modules)}"]
    ended = subprocess.run(
        command, cwd=REPOSITORY, env=environment, check=False, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr
