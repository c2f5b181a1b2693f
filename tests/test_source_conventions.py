"""Conventions of the source that keep reading easy: names, docstrings, sizes and the decision index."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
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

FORWARDS = {
    "Forbidding.list": "hides a catalog to which only the methods of the class may write",
    "History.tip": "hides the branches of git",
    "Principal.author": "a principal is an author, whoever acts for it",
    "QueueState.forget": "the other half of `store_event`",
    "UnderWay.result": "hides a future that must not be cancelled alone",
    "Workspaces.record": "hides a catalog to which only the methods of the class may write",
}
"""Methods that only forward to a collaborator, and why callers do not speak to it. Those of `Harness` are its
purpose: it has a short name for everything that the README shows."""

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


def test_a_method_does_more_than_forward_to_a_collaborator() -> None:
    """Callers speak to the collaborator itself. A port's methods and `close` may forward."""
    classes = [
        node for _, tree in _modules() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)
    ]
    ports = [set(_methods(one)) for one in classes if "Protocol" in map(_name_of, one.bases)]
    found = {
        f"{one.name}.{name}"
        for one in classes
        for name, method in _methods(one).items()
        if name != "close" and not name.startswith("_") and _only_forwards(method)
        if one.name != "Harness" and not (_is_record(one) and _is_property(method))
        if not any(name in port and port <= _methods(one).keys() for port in ports)
    }
    assert found == FORWARDS.keys()


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


@cache
def _modules() -> list[tuple[str, ast.Module]]:
    files = (file for package in PACKAGES for file in sorted((ROOT / package).rglob("*.py")))
    return [(str(file.relative_to(ROOT)), ast.parse(file.read_text())) for file in files]


def _is_property(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return not _decorators(function).isdisjoint({"property", "cached_property", "lazily"})


def _methods(node: ast.ClassDef) -> dict[str, ast.FunctionDef | ast.AsyncFunctionDef]:
    return {
        one.name: one
        for one in node.body
        if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def _only_forwards(method: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return True if the body is one call or attribute of an attribute of self, with the same arguments."""
    body = method.body[1:] if ast.get_docstring(method) else method.body
    if len(body) != 1 or not isinstance(body[0], ast.Return | ast.Expr):
        return False
    value = body[0].value
    if isinstance(value, ast.Await):
        value = value.value
    if not isinstance(value, ast.Call):
        return _decorators(method) == {"property"} and _depth(value) > 1
    arguments = [one.value if isinstance(one, ast.Starred) else one for one in value.args]
    arguments += [one.value for one in value.keywords]
    own = {one.arg for one in ast.walk(method.args) if isinstance(one, ast.arg)}
    return _depth(value.func) > 1 and all(_name_of(one) in own for one in arguments)


def _is_record(node: ast.ClassDef) -> bool:
    """Return True for a class of values. Its properties may shorten what lies deeper in it."""
    return "dataclass" in _decorators(node) or "StrictModel" in map(_name_of, node.bases)


def _decorators(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    calls = (one.func if isinstance(one, ast.Call) else one for one in node.decorator_list)
    return {_name_of(one) or getattr(one, "attr", "") for one in calls}


def _depth(node: ast.expr | None) -> int:
    """Return the number of attributes from self to this node; 0 for one of anything else."""
    if isinstance(node, ast.Attribute):
        inner = node.value
        return 1 if _name_of(inner) == "self" else _depth(inner) and _depth(inner) + 1
    return 0


def _name_of(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else ""


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
