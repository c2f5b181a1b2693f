"""Check a git command line from an untrusted caller: every word must be known to do no more than read.

Git has options that write files (`--output`), run programs (`--ext-diff`, `--textconv`), read files
outside the history (`diff` of two paths) or set configuration (`-c`). Git also completes abbreviated
option names, and each version adds options. So this module has no list of forbidden words: it refuses
every word that is not in the lists below.

Revisions are ids, `main` or `HEAD` with `^` and `~`. Paths follow `--`, and each must be a valid
WorkspacePath. `--` is always passed, so that no word can be taken for the other kind. The program that
prints the output adds the colours, so no escape sequence in the output comes from git.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from workspaces.errors import Refused
from workspaces.history.git.branch import NAME
from workspaces.paths import WorkspacePath

ARGUMENTS_MAX = 200

_DIFF = """
-p -u --patch -s --no-patch --raw --stat --numstat --shortstat --summary --name-only --name-status
--word-diff --word-diff=plain --word-diff=porcelain --no-color -w -b --ignore-all-space
--ignore-space-change --ignore-blank-lines --minimal --patience --histogram --full-index --abbrev
--no-renames -M -C --find-renames --find-copies -R --function-context -z --text -a --binary --check
"""
_WALK = """
--oneline --graph --all --reverse --topo-order --date-order --first-parent --no-merges --merges
--follow --decorate --no-decorate --parents --children --full-history -i --regexp-ignore-case
-F --fixed-strings --pretty --abbrev-commit --no-abbrev-commit --left-right --count --objects
-m --cc --invert-grep --all-match
"""
_BLAME = "-p -s -e -l -t -w -M -C --porcelain --line-porcelain --show-name"
_TREE = "-r -t -d -l -z --long --name-only --full-tree"

_DIFF_VALUES = (
    r"-U\d+|--unified=\d+|-[SG].+|--stat=[\d,]+|--diff-filter=[A-Za-z]+|-[MC]\d+%?|--abbrev=\d+"
)
_WALK_VALUES = (
    r"-n\d+|-\d+|--max-count=\d+|--skip=\d+|--(since|until|after|before|author|committer|grep)=.+"
    r"|--(format|pretty|date)=.+|--diff-merges=[a-z-]+|--decorate=[a-z]+"
)

_NONE = "(?!)"

_ALLOWED = {
    command: (frozenset(plain.split()), re.compile(valued))
    for command, plain, valued in (
        ("log", _DIFF + _WALK, f"{_DIFF_VALUES}|{_WALK_VALUES}"),
        ("show", _DIFF + _WALK, f"{_DIFF_VALUES}|{_WALK_VALUES}"),
        ("diff", _DIFF, _DIFF_VALUES),
        ("rev-list", _WALK, _WALK_VALUES),
        ("shortlog", "-s -n -e -sn -ns -sne", _WALK_VALUES),
        ("blame", _BLAME, r"-L\d+,\+?\d+|--date=[a-z0-9-]+|--abbrev=\d+"),
        ("ls-tree", _TREE, _NONE),
        ("cat-file", "-p -t -s -e", _NONE),
    )
}
_WITHOUT_SEPARATOR = {"cat-file"}
_FROM_THE_TIP = {"log", "show", "shortlog", "blame", "ls-tree", "rev-list"}
"""Commands for which no revision means the newest one. In a bare repository git would not know it."""

_REVISION = re.compile(
    r"\^?(HEAD|main|refs/heads/main|[0-9a-f]{4,40})(\^\d*|~\d*|\^\{(commit|tree)\})*"
)


def check_git_command(arguments: Sequence[str]) -> list[str]:
    """Return the git command line to run.

    Raises: Refused when the command line might do more than read."""
    command, *words = arguments or [""]
    if command not in _ALLOWED:
        raise Refused("git", command, "is not an allowed read-only command", remedy=_remedy())
    if len(words) > ARGUMENTS_MAX:
        raise Refused("git", command, f"has more than {ARGUMENTS_MAX} arguments")
    cut = words.index("--") if "--" in words else len(words)
    options, revisions = _split_options(command, words[:cut])
    paths = [str(WorkspacePath(word)) for word in words[cut + 1 :]]
    if not revisions and "--all" not in options and command in _FROM_THE_TIP:
        revisions = [NAME]
    if command == "diff" and not revisions:
        raise Refused("git", "diff", "needs a revision, because there is no working tree")
    separator = [] if command in _WITHOUT_SEPARATOR else ["--"]
    return [command, *_fixed_options(command), *options, *revisions, *separator, *paths]


def _split_options(command: str, words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Check the words before `--` and separate them into options and revisions."""
    options: list[str] = []
    revisions: list[str] = []
    for word in _join_count(words):
        if word.startswith("-"):
            _check_option(command, word)
            options.append(word)
        else:
            _check_revision(word)
            revisions.append(word)
    return options, revisions


def _join_count(words: Sequence[str]) -> list[str]:
    """Write `-n 5` as `-n5`. It is the one option whose value people write as a separate word."""
    joined: list[str] = []
    for word in words:
        if joined and joined[-1] == "-n" and word.isdecimal() and word.isascii():
            joined[-1] += word
        else:
            joined.append(word)
    return joined


def _check_option(command: str, word: str) -> None:
    plain, valued = _ALLOWED[command]
    if word not in plain and not valued.fullmatch(word):
        raise Refused(
            "git",
            word,
            f"is not an allowed option of `git {command}`",
            remedy="run your own git client on the history itself: see docs/data.md",
        )


def _check_revision(word: str) -> None:
    revision, colon, path = word.partition(":")
    if colon and path:
        WorkspacePath(path.rstrip("/"))
    ends = re.split(r"\.{2,3}", revision, maxsplit=1)
    if not all(_REVISION.fullmatch(end) for end in ends if end) or not any(ends):
        raise Refused(
            "git",
            word,
            "is not a revision",
            remedy="write the id of a revision, `main` or `HEAD`; put paths after `--`",
        )


def _fixed_options(command: str) -> list[str]:
    """Return the options that are always passed. Without them git would read its configuration."""
    is_diff = command in {"log", "show", "diff"}
    return ["--no-ext-diff", "--no-textconv"] if is_diff else []


def _remedy() -> str:
    return f"use one of {', '.join(sorted(_ALLOWED))}"
