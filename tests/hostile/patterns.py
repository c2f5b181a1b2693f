"""Every regular expression of the source, and how it is applied.

What a module compiles when it is imported, and what a function compiles while it runs, passes through one
door: `re._compile`. A recorder stands there. What stands as a whole in a call within a function is evaluated
from the syntax tree, so that no test need call that function.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

ROOT = Path(__file__).parent.parent.parent
SOURCES = tuple(f"{ROOT / name}/" for name in ("workspaces", "harness"))

_COMPREHENSIONS = {"<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>"}
SEARCHING = frozenset({"search", "finditer", "findall", "sub", "subn", "split"})
MATCHING = frozenset({"match", "fullmatch"})
PER_PLACE_MAX = 6
"""Of the expressions that one line makes while it runs: they differ in what was asked for."""


class Pattern(NamedTuple):
    text: str | bytes
    flags: int
    place: str
    """The file and line that made it."""
    methods: frozenset[str]

    def __str__(self) -> str:
        how = ", ".join(sorted(self.methods))
        return f"{self.place}: {self.text!r} with flags {self.flags} by {how}"


class Recorder:
    """A note of each expression that one of our files compiles."""

    def __init__(self, *, imports: bool) -> None:
        self._imports = imports
        """Whether it is what a module compiles on import that is wanted, or what its functions do."""
        self.found: dict[tuple[str | bytes, int, str], str] = {}
        """The function of `re` that was called, by expression, flags and place."""
        self._at: dict[str, int] = {}
        self._original: Any = None

    def install(self) -> None:
        self._original = original = re._compile  # pyright: ignore

        def compiled(pattern: Any, flags: Any) -> Any:
            frame = sys._getframe(2)
            is_ours = frame.f_code.co_filename.startswith(SOURCES)
            if is_ours and isinstance(pattern, (str, bytes)) and self._wants(frame):
                line = f"{frame.f_code.co_filename[len(str(ROOT)) + 1 :]}:{frame.f_lineno}"
                self._note(pattern, int(flags), line, sys._getframe(1).f_code.co_name)
            return original(pattern, flags)

        re._compile = compiled  # pyright: ignore

    def uninstall(self) -> None:
        re._compile = self._original  # pyright: ignore

    def patterns(self) -> list[Pattern]:
        return [
            Pattern(text, flags, place, applied(place, name))
            for (text, flags, place), name in self.found.items()
        ]

    def _wants(self, frame: FrameType | None) -> bool:
        while frame is not None and frame.f_code.co_name in _COMPREHENSIONS:
            frame = frame.f_back
        return self._imports is (frame is not None and frame.f_code.co_name == "<module>")

    def _note(self, text: str | bytes, flags: int, place: str, name: str) -> None:
        key = text, flags, place
        if key not in self.found and self._at.get(place, 0) < PER_PLACE_MAX:
            self._at[place] = self._at.get(place, 0) + 1
            self.found[key] = name


def of_the_source() -> list[Pattern]:
    """Return what the modules compile on import, and what stands whole in their functions.

    No module of ours may have been imported before: what is imported twice is compiled once.
    """
    recorder = Recorder(imports=True)
    recorder.install()
    try:
        names = list(_modules())
    finally:
        recorder.uninstall()
    found = {(one.text, one.flags): one for one in recorder.patterns()}
    for name in names:
        module = sys.modules[name]
        for one in _written(Path(str(module.__file__)), vars(module)):
            found.setdefault((one.text, one.flags), one)
    return list(found.values())


def applied(place: str, name: str) -> frozenset[str]:
    """Return the methods by which what this call makes is applied; all where that is not plain to see."""
    if name != "compile":
        return frozenset({name})
    file, _, line = place.rpartition(":")
    return _uses(ROOT / file).get(int(line), SEARCHING | MATCHING)


def _modules() -> Iterator[str]:
    for name in ("workspaces", "harness"):
        package = importlib.import_module(name)
        yield name
        for found in pkgutil.walk_packages(package.__path__, f"{name}."):
            importlib.import_module(found.name)
            yield found.name


@cache
def _uses(file: Path) -> dict[int, frozenset[str]]:
    """Return the methods of each private name that `re.compile` is assigned to, by the line of the call.

    A name that is also used otherwise, handed on for example, is not in it. Of `re.compile(…).match` the
    method stands in the call itself.
    """
    tree = ast.parse(file.read_text())
    at_once: dict[int, frozenset[str]] = {}
    made: dict[str, int] = {}
    for node in tree.body:
        match node:
            case ast.Assign([ast.Name(name)], ast.Call(ast.Attribute(ast.Name("re"), "compile"))):
                made[name] = node.value.lineno
    methods: dict[str, set[str]] = {name: set() for name in made if name.startswith("_")}
    loads = dict.fromkeys(methods, 0)
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(ast.Call(ast.Attribute(ast.Name("re"), "compile")), method):
                at_once[node.lineno] = at_once.get(node.lineno, frozenset()) | {method}
            case ast.Attribute(ast.Name(name), method) if name in methods:
                methods[name].add(method)
                loads[name] -= 1
            case ast.Name(name, ast.Load()) if name in methods:
                loads[name] += 1
    known = {made[name]: frozenset(of) for name, of in methods.items() if of and not loads[name]}
    return {**at_once, **known}


def _written(file: Path, namespace: dict[str, Any]) -> Iterator[Pattern]:
    """Yield what stands in a call of `re` and can be evaluated with nothing but the module."""
    for node in ast.walk(ast.parse(file.read_text())):
        match node:
            case ast.Call(ast.Attribute(ast.Name("re"), name), [first, *rest]) if name != "escape":
                place = f"{file.relative_to(ROOT)}:{node.lineno}"
                stated = [one.value for one in node.keywords if one.arg == "flags"]
                if name == "compile":
                    stated += rest
                try:
                    text, *flags = (_evaluated(one, namespace) for one in (first, *stated))
                except NameError:
                    continue  # made of what the function was given: the recorder sees it run
                if isinstance(text, (str, bytes)):
                    yield Pattern(text, int(sum(flags)), place, applied(place, name))


def _evaluated(node: ast.expr, namespace: dict[str, Any]) -> Any:
    return eval(compile(ast.Expression(node), "<source>", "eval"), namespace)
