"""Measure the size and naming of the source tree and print them beside five other projects.

python bench/stats.py             the table, as Markdown
python bench/stats.py --json      the numbers of this tree, as JSON
python bench/stats.py --path      files and functions of a warm event (see event_path.py)
"""

from __future__ import annotations

import argparse
import ast
import json
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PRODUCT = (
    "veen", "hub", "recorder", "bridge", "zone", "spark_jobs", "cli", "dags", "plugins",
)  # fmt: skip
TESTS = "tests"
LONG_FILE = 250

# Five projects of the same field. The cells are copied from the table that was made before this
# tree was restructured, "from their own files"; which files it counted is not recorded, and this
# script has not been run on them. It agrees with that table's column of this tree: at ea6156c it
# gives the same 29 % of classes, 13 % of functions, 39 % of loops and 6 / 14 imports.
ANCHORS = ("sigstore-python", "python-tuf", "borg", "cosmos", "pyca/cryptography")
ANCHOR_ROWS: dict[str, tuple[str, ...]] = {
    "product files / lines": ("30 / 8k", "15 / 4k", "106 / 37k", "111 / 21k", "78 / 14k"),
    "mean / median file": ("267 / 186", "283 / 139", "351 / 198", "191 / 75", "178 / 58"),
    "files over 250 lines": ("36 %", "33 %", "39 %", "21 %", "21 %"),
    "own imports a file, median / p90": ("2 / 10", "1 / 5", "4 / 8", "1 / 7", "1 / 7"),
    "classes that share a name": ("2 %", "0", "7 %", "1 %", "2 %"),
    "functions with a local `found`": ("0", "0", "0.2 %", "0", "0"),
    "loops `for one in`": ("0", "0", "0", "0", "0"),
    "test lines in helpers": ("21 %", "14 %", "3 %", "1 %", "5 %"),
}

FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeStats:
    """The numbers of one source tree; shares are percentages."""

    files: int
    lines: int
    mean_file: int
    median_file: int
    long_files: float
    imports_median: int
    imports_p90: int
    shared_class_names: float
    most_shared_class: str
    functions_with_found: float
    loops_for_one: float
    helper_test_lines: float

    def rows(self) -> dict[str, str]:
        """The cells of the table, by the same names as ``ANCHOR_ROWS``."""
        shared = percent(self.shared_class_names)
        cells = (
            f"{self.files} / {round(self.lines / 1000)}k",
            f"{self.mean_file} / {self.median_file}",
            percent(self.long_files),
            f"{self.imports_median} / {self.imports_p90}",
            f"{shared} ({self.most_shared_class})" if self.most_shared_class else shared,
            percent(self.functions_with_found),
            percent(self.loops_for_one),
            percent(self.helper_test_lines),
        )
        return dict(zip(ANCHOR_ROWS, cells, strict=True))


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file of the tree that is not empty."""

    path: Path
    text: str
    tree: ast.Module

    @property
    def line_count(self) -> int:
        return len(self.text.splitlines())


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--root", type=Path, default=ROOT, help="another checkout to measure")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--path", action="store_true", help="trace a warm event instead")
    options = parser.parse_args()
    if options.path:
        from event_path import trace  # noqa: PLC0415 - imports the product

        traced = trace()
        print(json.dumps(traced.document()) if options.json else traced.table())
        return
    stats = measure(options.root)
    print(json.dumps(asdict(stats)) if options.json else table(stats))


def table(stats: TreeStats) -> str:
    lines = [_row("", (*ANCHORS, "this tree")), "|---" * (len(ANCHORS) + 2) + "|"]
    ours = stats.rows()
    lines += [_row(name, (*cells, ours[name])) for name, cells in ANCHOR_ROWS.items()]
    return "\n".join(lines)


def _row(name: str, cells: Iterable[str]) -> str:
    return f"| {' | '.join((name, *cells))} |"


def percent(share: float) -> str:
    """As the anchors are written: a whole number, or one digit where it is under one."""
    if share == 0:
        return "0"
    return f"{share:.1f} %" if share < 1 else f"{share:.0f} %"


def measure(root: Path) -> TreeStats:
    files = list(read_sources(root, PRODUCT))
    sizes = [file.line_count for file in files]
    imports = imports_per_file(root, files)
    classes = Counter(name for file in files for name in class_names(file.tree))
    shared = [name for name, count in classes.most_common() if count > 1]
    functions = [
        node for file in files for node in ast.walk(file.tree) if isinstance(node, FUNCTION)
    ]
    with_found = sum(assigns(function, "found") for function in functions)
    loops = [name for file in files for name in loop_variables(file.tree)]
    return TreeStats(
        files=len(files),
        lines=sum(sizes),
        mean_file=round(statistics.mean(sizes)),
        median_file=round(statistics.median(sizes)),
        long_files=_share(sum(size > LONG_FILE for size in sizes), len(sizes)),
        imports_median=round(statistics.median(imports)),
        imports_p90=percentile(imports, 90),
        shared_class_names=_share(sum(classes[name] for name in shared), classes.total()),
        most_shared_class=f"`{shared[0]}` x{classes[shared[0]]}" if shared else "",
        functions_with_found=_share(with_found, len(functions)),
        loops_for_one=_share(loops.count("one"), len(loops)),
        helper_test_lines=helper_share(root),
    )


def read_sources(root: Path, folders: Sequence[str]) -> Iterator[SourceFile]:
    for folder in folders:
        for path in sorted((root / folder).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            if text.strip():
                yield SourceFile(path, text, ast.parse(text))


def imports_per_file(root: Path, files: Sequence[SourceFile]) -> list[int]:
    """For each file, how many other modules of the product it imports, wherever in the file."""
    modules = {module for file in files for module in module_names(root, file.path)}
    return [len(own_imports(file.tree, modules)) for file in files]


def module_names(root: Path, path: Path) -> set[str]:
    """The names by which a module is imported; Airflow imports its own by bare names."""
    parts = path.relative_to(root).with_suffix("").parts
    dotted = ".".join(parts).removesuffix(".__init__")
    return {dotted} | ({".".join(parts[1:])} if parts[0] in {"dags", "plugins"} else set())


def own_imports(tree: ast.Module, modules: set[str]) -> set[str]:
    imported: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported.update(alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                submodule = f"{node.module}.{alias.name}"
                imported.add(submodule if submodule in modules else node.module)
    return imported & modules


def class_names(tree: ast.Module) -> Iterator[str]:
    """The classes of a module, without those inside a function or another class."""
    return (node.name for node in tree.body if isinstance(node, ast.ClassDef))


def assigns(function: ast.AST, name: str) -> bool:
    """Whether a function binds a local of this name, in any way."""
    return any(
        isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store)
        for node in ast.walk(function)
    )


def loop_variables(tree: ast.Module) -> Iterator[str]:
    """The target of every loop and comprehension, as it is written."""
    for node in ast.walk(tree):
        if isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
            yield ast.unparse(node.target)


def helper_share(root: Path) -> float:
    """The share of test lines in files that are not tests: helpers and conftests."""
    lines = Counter[bool]()
    for file in read_sources(root, (TESTS,)):
        lines[file.path.name.startswith("test_")] += file.line_count
    return _share(lines[False], lines.total())


def percentile(values: Sequence[int], share: int) -> int:
    """The smallest value that is not exceeded by ``share`` percent of the values."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * share // 100) - 1)]


def _share(part: int, whole: int) -> float:
    return round(100 * part / whole, 2) if whole else 0.0


if __name__ == "__main__":
    main()
