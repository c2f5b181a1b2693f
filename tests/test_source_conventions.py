"""Conventions of the source that keep reading easy: names, docstrings, sizes and the decision index."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGES = ("workspaces", "harness")

SUBJECTLESS_MAX = 0
"""Docstrings of functions that begin with no verb. It never rises."""

MODULES_MAX = 15
LINES_MAX = 620
POSITIONAL_MAX = 6
GLOSSARY_ROWS_MAX = 25
README_CHARACTERS_MAX = 7_000

_NOT_A_VERB = re.compile(
    r"(?:Return (?:what|whether|who|where|how|why)\b)|"
    r"(?:All|As|At|Beyond|By|For|From|How|In|It|Its|None|Nothing|Nobody|Of|On|One|Or|Somebody|That|The"
    r"|They|This|Those|To|What|When|Where|Whether|Who|Whoever|Whose|Why|With|Within|Without)\b"
)


def test_a_public_type_name_is_defined_only_once() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for file, tree in _modules():
        for name in _public_types(tree):
            places[name.strip("_").rstrip("0123456789")].append(file)
    assert {name: files for name, files in places.items() if len(files) > 1} == {}


def test_a_function_docstring_begins_with_a_verb() -> None:
    found = [
        f"{file}:{node.lineno}: {text.splitlines()[0]}"
        for file, tree in _modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if (text := ast.get_docstring(node)) and _NOT_A_VERB.match(text)
        if not (text.startswith("The ") and _is_property(node))  # an attribute, for its readers
    ]
    assert len(found) <= SUBJECTLESS_MAX, "\n".join(found)


def test_a_call_with_many_arguments_uses_keywords() -> None:
    found = [
        f"{file}:{node.lineno}"
        for file, tree in _modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and len(node.args) > POSITIONAL_MAX
        if not (isinstance(node.func, ast.Attribute | ast.Name) and _takes_any_number(node.func))
    ]
    assert found == []


def test_folders_and_source_files_stay_under_their_size_limits() -> None:
    folders: dict[str, int] = defaultdict(int)
    long: list[str] = []
    for file, _ in _modules():
        folders[str(Path(file).parent)] += Path(file).name != "__init__.py"
        if len((ROOT / file).read_text().splitlines()) > LINES_MAX:
            long.append(file)
    assert [folder for folder, count in folders.items() if count > MODULES_MAX] == []
    assert long == []


def test_the_glossary_and_the_readme_stay_under_their_length_limits() -> None:
    text = (ROOT / "docs/architecture.md").read_text()
    glossary = text.split("## Glossary")[1].split("\n## ")[0]
    rows = [line for line in glossary.splitlines() if line.startswith("| ")]
    assert len(rows) - 1 <= GLOSSARY_ROWS_MAX  # without the heading
    assert len((ROOT / "README.md").read_text()) <= README_CHARACTERS_MAX


def test_every_decision_record_is_listed_in_the_decision_index() -> None:
    folder = ROOT / "docs/decisions"
    listed = set(re.findall(r"\]\((\d{4}-[^)]+\.md)\)", (folder / "README.md").read_text()))
    assert {file.name for file in folder.glob("[0-9]*.md")} == listed


def _modules() -> Iterator[tuple[str, ast.Module]]:
    for package in PACKAGES:
        for file in sorted((ROOT / package).rglob("*.py")):
            yield str(file.relative_to(ROOT)), ast.parse(file.read_text())


def _is_property(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    names = {getattr(one, "id", getattr(one, "attr", "")) for one in function.decorator_list}
    return not names.isdisjoint({"property", "cached_property", "lazily"})


def _public_types(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            name = node.name
        elif (
            isinstance(node, ast.Assign)
            and len(node.targets) == 1
            and isinstance(node.targets[0], ast.Name)
        ):
            name = node.targets[0].id
        else:
            continue
        if re.fullmatch(r"[A-Z]+[a-z]\w*", name):
            yield name


def _takes_any_number(function: ast.Attribute | ast.Name) -> bool:
    """Return True for functions of the standard library that take as many arguments as there are."""
    name = function.attr if isinstance(function, ast.Attribute) else function.id
    return name in ("chain", "join", "run_git", "_git")
