"""An inquiry: a git command line from a stranger, of which every word is known to do no more than read.

Git has options that write files (`--output`), run programs (`--ext-diff`, `--textconv`), read files
outside the history (`diff` of two paths) or set configuration (`-c`), it completes abbreviated names
of options, and it gains new ones with each version. So nothing is looked for that must be refused:
what is not in these lists is refused. Revisions are ids, `main` or `HEAD` with `^` and `~`; paths
stand after `--`, each through the path door; and `--` is always there, so that no word can be taken
for the other kind. Colours are left to whoever prints: then no escape sequence in the output is git's.
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
"""Where no revision means the newest one; in a history without files git would not know."""

_REVISION = re.compile(
    r"\^?(HEAD|main|refs/heads/main|[0-9a-f]{4,40})(\^\d*|~\d*|\^\{(commit|tree)\})*"
)


def check_git_command(arguments: Sequence[str]) -> list[str]:
    """The command line to run, in git's words. Refused when it might do more than read."""
    command, *words = arguments or [""]
    if command not in _ALLOWED:
        raise Refused("git", command, "is not among the commands that only read", remedy=_remedy())
    if len(words) > ARGUMENTS_MAX:
        raise Refused("git", command, f"has more than {ARGUMENTS_MAX} arguments")
    cut = words.index("--") if "--" in words else len(words)
    options, revisions = _sorted(command, words[:cut])
    paths = [str(WorkspacePath(word)) for word in words[cut + 1 :]]
    if not revisions and "--all" not in options and command in _FROM_THE_TIP:
        revisions = [NAME]
    if command == "diff" and not revisions:
        raise Refused("git", "diff", "needs a revision: there is no working tree here")
    separator = [] if command in _WITHOUT_SEPARATOR else ["--"]
    return [command, *_fixed(command), *options, *revisions, *separator, *paths]


def _sorted(command: str, words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Options and revisions, told apart."""
    options: list[str] = []
    revisions: list[str] = []
    for word in _joined(words):
        if word.startswith("-"):
            _check_option(command, word)
            options.append(word)
        else:
            _check_revision(word)
            revisions.append(word)
    return options, revisions


def _joined(words: Sequence[str]) -> list[str]:
    """`-n 5` as `-n5`: the one option whose value people write apart."""
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
            f"is not among the options of `git {command}` that are known to only read",
            remedy="any git client reads the history itself: see docs/data.md",
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
            remedy="write the id of a revision, `main` or `HEAD`; paths stand after `--`",
        )


def _fixed(command: str) -> list[str]:
    """Said always, whatever the options: git's own defaults would ask its configuration."""
    diffing = command in {"log", "show", "diff"}
    return ["--no-ext-diff", "--no-textconv"] if diffing else []


def _remedy() -> str:
    return f"these do: {', '.join(sorted(_ALLOWED))}"
