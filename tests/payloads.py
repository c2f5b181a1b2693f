"""Paths that strangers send: shapes of everything that has ever led out of a directory.

Each is a case with a name. Whether a path is good is for `paths` to say; what every entry owes each of
these, good or bad, is that nothing outside is read or touched and that nothing ends in a bug.
"""

from __future__ import annotations

from urllib.parse import unquote, unquote_to_bytes

from workspaces.paths import PART_BYTES_MAX, PARTS_MAX, PATH_BYTES_MAX

CANARY = "outside/secret.md"
"""What lies beside the home in the tests: three directories up from a workspace's root."""


def _traversals() -> dict[str, str]:
    """`..` and `/` in every disguise, each aimed at the canary."""
    dots = {
        "dots": "..",
        "percent": "%2e%2e",
        "percent upper": "%2E%2E",
        "percent first": "%2e.",
        "percent second": ".%2e",
        "percent twice": "%252e%252e",
        "percent thrice": "%25252e%25252e",
        "overlong two": "%c0%ae%c0%ae",
        "overlong three": "%e0%80%ae%e0%80%ae",
        "overlong four": "%f0%80%80%ae%f0%80%80%ae",
        "utf-7": "+AC4-+AC4-",
        "iis": "%u002e%u002e",
        "html": "&#46;&#46;",
        "fullwidth": "．．",
        "one dot leader": "․․",
        "two dot leader": "‥",
        "small stop": "﹒﹒",
        "ideographic": "。。",
        "ellipsis": "…",
        "zero width between": ".\u200b.",
        "joiner between": ".\u200d.",
        "non-joiner between": ".\u200c.",
        "word joiner after": "..\u2060",
        "bom before": "\ufeff..",
        "soft hyphen": ".\u00ad.",
        "rtl override": "\u202e..",
        "rtl mark": "..\u200f",
        "variation selector": "..\ufe0f",
        "combining after": "..\u0301",
        "combining grapheme joiner": ".\u034f.",
        "nul after": "..\0",
        "space after": ".. ",
        "space before": " ..",
        "nbsp after": "..\u00a0",
        "tab after": "..\t",
        "newline after": "..\n",
        "backspace": "..x\b",
        "three": "...",
        "four": "....",
        "semicolon": "..;",
        "semicolon parameter": "..;a=b",
        "tag characters": "..\U000e0020",
        "high surrogate": "..\ud800",
        "low surrogate": "..\udc2e",
        "raw overlong": "\udcc0\udcae\udcc0\udcae",
    }
    slashes = {
        "backslash": "\\",
        "percent slash": "%2f",
        "percent slash upper": "%2F",
        "percent backslash": "%5c",
        "percent twice slash": "%252f",
        "overlong slash": "%c0%af",
        "overlong slash three": "%e0%80%af",
        "overlong backslash": "%c1%9c",
        "raw overlong slash": "\udcc0\udcaf",
        "fullwidth slash": "／",
        "fullwidth backslash": "＼",
        "division slash": "∕",
        "fraction slash": "⁄",
        "big solidus": "⧸",
        "small backslash": "﹨",
        "yen": "¥",
        "won": "₩",
        "double": "//",
        "dotted": "/./",
        "mixed": "\\/",
        "colon": ":",
        "nul before": "\0/",
    }
    aims = {
        f"up by {name}": "/".join([dot] * 3 + ["outside", "secret.md"])
        for name, dot in dots.items()
    }
    aims |= {
        f"up through {name}": slash.join([".."] * 3 + ["outside", "secret.md"])
        for name, slash in slashes.items()
    }
    return aims


def _made_of_dots() -> dict[str, str]:
    return {
        "one dot": ".",
        "two dots": "..",
        "dot slash": "./",
        "two dots slash": "../",
        "dot inside": "notes/./a.md",
        "up and down": "notes/../MEMORY.md",
        "up inside and out": "notes/../../../../outside/secret.md",
        "up at the end": "notes/..",
        "up after a missing name": "missing/../MEMORY.md",
        "up after a file": "MEMORY.md/../MEMORY.md",
        "up nested": "....//....//....//outside/secret.md",
        "up stripped once": "..././..././..././outside/secret.md",
        "far up": "../" * 60 + "etc/passwd",
        "very far up": "../" * 400,
        "up in the middle of a name": "a..b/c",
        "dots before a name": "..a",
        "dots after a name": "a..",
        "a staged file": "../../staging",
        "the lock": "../../locks",
        "the records": "../../state.db",
        "the history": "../../history",
        "the settings": "../../harness.yaml",
    }


def _absolute() -> dict[str, str]:
    return {
        "root": "/",
        "root twice": "//",
        "root thrice": "///",
        "passwd": "/etc/passwd",
        "passwd twice": "//etc/passwd",
        "canary": "OUTSIDE/secret.md",
        "canary dotted": "/.OUTSIDE/secret.md",
        "canary by its own name": "/OUTSIDE/secret.md",
        "own root": "/proc/self/root/etc/passwd",
        "own directory": "/proc/self/cwd",
        "own environment": "proc/self/environ",
        "descriptor": "/dev/fd/0",
        "standard input": "/dev/stdin",
        "null": "/dev/null",
        "home": "~",
        "home slash": "~/.ssh/id_ed25519",
        "root's home": "~root/.bashrc",
        "home variable": "$HOME/x",
        "braced variable": "${HOME}",
        "windows variable": "%USERPROFILE%/x",
        "substitution": "$(id)",
        "backquotes": "`id`",
        "brackets": "${{7*7}}",
        "file url": "file:///etc/passwd",
        "file url local": "file://localhost/etc/passwd",
        "http url": "http://localhost/x",
        "s3 url": "s3://bucket/x",
        "data url": "data:text/plain,x",
        "drive": "C:\\Windows\\win.ini",
        "drive slashes": "C:/Windows/win.ini",
        "drive relative": "C:x",
        "unc": "\\\\server\\share\\x",
        "unc slashes": "//server/share/x",
        "unc long": "\\\\?\\C:\\x",
        "unc long unc": "\\\\?\\UNC\\server\\share",
        "unc device": "\\\\.\\PhysicalDrive0",
        "nt": "\\??\\C:\\x",
        "backslash root": "\\x",
    }


def _characters() -> dict[str, str]:
    return {
        "nul": "\0",
        "nul inside": "MEMORY.md\0.png",
        "nul before": "\0MEMORY.md",
        "nul percent": "MEMORY.md%00.png",
        "newline": "a\nb",
        "return": "a\rb",
        "header": "a\r\nX-Injected: 1",
        "tab": "a\tb",
        "escape": "\x1b[31mred",
        "bell": "a\x07",
        "delete": "a\x7f",
        "next line": "a\x85b",
        "record separators": "a\x1eb\x1fc",
        "line separator": "a\u2028b",
        "paragraph separator": "a\u2029b",
        "rtl override": "a\u202etxt.md",
        "isolate": "a\u2066b",
        "zero width space": "MEM\u200bORY.md",
        "word joiner": "MEM\u2060ORY.md",
        "bom": "\ufeffMEMORY.md",
        "soft hyphen": "MEM\u00adORY.md",
        "hangul filler": "a\u3164b",
        "tag": "a\U000e0041b",
        "private": "a\ue000b",
        "private plane": "a\U000f0000b",
        "noncharacter": "a\uffffb",
        "unassigned": "a\u0378b",
        "high surrogate": "a\ud83d",
        "low surrogate": "a\udc00",
        "swapped surrogates": "a\udc00\ud83d",
        "undecodable byte": "a\udcff",
        "undecodable percent": "a%ff%fe",
        "decomposed": "cafe\u0301.md",
        "composed": "caf\u00e9.md",
        "compatible": "ﬁle①.md",
        "angstrom": "\u212b.md",
        "kelvin": "\u212aelvin.md",
        "ohm": "\u2126.md",
        "hangul parts": "\u1100\u1161.md",
        "many marks": "a" + "\u0301" * 100,
        "marks out of order": "a\u0301\u0323",
        "first mark": "\u0301a",
        "dotless": "memory.md".replace("m", "ı"),
        "long s": "ſ.md",
        "sharp s": "ß.md",
        "emoji": "👩‍👩‍👧.md",
        "flag": "🇺🇳.md",
        "colon": "a:b",
        "stream": "MEMORY.md::$DATA",
        "stream name": "MEMORY.md:hidden",
        "star": "*",
        "star inside": "notes/*.md",
        "two stars": "**/*.md",
        "question": "MEMORY.m?",
        "class": "[A-Z]*.md",
        "class alone": "[MEMORY.md]",
        "braces": "{MEMORY,TASKS}.md",
        "extglob": "!(a)",
        "pathspec top": ":/",
        "pathspec magic": ":(top)MEMORY.md",
        "pathspec exclude": ":!MEMORY.md",
        "pathspec attribute": ":(attr:x)a",
        "revision": "HEAD:MEMORY.md",
        "revision range": "main..other",
        "reflog": "HEAD@{1}",
        "pipe": "a|id",
        "semicolon": "a;id",
        "and": "a&&id",
        "quotes": '"a"',
        "single quotes": "'a'",
        "less": "<a",
        "greater": ">a",
        "tags": "<script>.md",
        "percent": "100%.md",
        "percent broken": "a%zz",
        "percent end": "a%",
        "format": "%s%n%x",
        "template": "{0.__class__}",
        "jinja": "{{ 7*7 }}",
        "hash": "#a",
        "equals": "a=b",
        "at": "@a",
        "plus": "+a",
        "space": " ",
        "spaces inside": "a  b.md",
        "comma": "a,b",
    }


def _lengths() -> dict[str, str]:
    return {
        "empty": "",
        "trailing slash": "MEMORY.md/",
        "empty part": "notes//a.md",
        "file as a directory": "MEMORY.md/x",
        "file as a deep directory": "MEMORY.md/x/y/z",
        "longest part": "x" * PART_BYTES_MAX,
        "part too long": "x" * (PART_BYTES_MAX + 1),
        "part of 255": "x" * 255,
        "part of 256": "x" * 256,
        "part long in bytes": "é" * (PART_BYTES_MAX // 2 + 1),
        "longest path": "/".join(["y" * 199] * 5 + ["z" * 24]),
        "path too long": "y/" * (PATH_BYTES_MAX // 2) + "y",
        "path of 4096": "y/" * 2048,
        "a million": "x" * 1_000_000,
        "a million dots": "." * 1_000_000,
        "a million ups": "../" * 300_000,
        "deepest": "d/" * (PARTS_MAX - 1) + "d",
        "too deep": "d/" * PARTS_MAX + "d",
        "a hundred deep": "d/" * 100 + "d",
        "a number": "0",
        "minus one": "-1",
        "a word": "None",
        "true": "true",
    }


def _names() -> dict[str, str]:
    ends = {"dot": ".", "dots": "..", "space": " ", "dot space": ". ", "nbsp": "\u00a0"}
    cases = {f"{name} at the end": f"MEMORY.md{end}" for name, end in ends.items()}
    cases |= {f"{name} at a directory's end": f"notes{end}/a.md" for name, end in ends.items()}
    devices = ("CON", "prn", "Aux", "NUL", "COM1", "lpt9", "COM¹", "CONIN$", "CLOCK$")
    cases |= {f"device {name}": name for name in devices}
    cases |= {
        "device with an ending": "nul.txt",
        "device with two": "con.tar.gz",
        "device with a space": "aux .md",
        "device below": "notes/com1.md",
        "device as a directory": "nul/a.md",
    }
    return cases


def _git() -> dict[str, str]:
    names = {
        "plain": ".git",
        "upper": ".GIT",
        "mixed": ".Git",
        "dot": ".git.",
        "space": ".git ",
        "stream": ".git::$INDEX_ALLOCATION",
        "short": "git~1",
        "short upper": "GIT~2",
        "zwnj": ".g\u200cit",
        "zwj": ".gi\u200dt",
        "zwsp": ".gi\u200bt",
        "bom": "\ufeff.git",
        "rtl": ".g\u202eit",
        "soft hyphen": ".g\u00adit",
        "dotless": ".gıt",
        "dotted capital": ".Gİt",
        "fullwidth": "．ｇｉｔ",
        "percent": "%2egit",
        "backslash": ".git\\config",
        "combining": ".gi\u0307t",
    }
    cases = {f"git {name}": f"{git}/config" for name, git in names.items()}
    cases |= {
        f"git {name}": name
        for name in (".git", ".gitmodules", ".gitattributes", ".gitignore", ".GitModules")
    }
    cases |= {
        "git hook": ".git/hooks/post-checkout",
        "git below": "notes/.git/config",
        "git of modules": ".git/modules/x/config",
        "git bare": "HEAD",
        "git bare config": "config",
        "git objects": "objects/pack/x",
        "git trailing": ".git/",
        "harness": ".harness",
        "harness upper": ".HARNESS/x",
        "harness joiner": ".har\u200dness",
    }
    return cases


def _twins() -> dict[str, str]:
    return {
        "twin lower": "memory.md",
        "twin upper": "MEMORY.MD",
        "twin directory": "NOTES/a.md",
        "twin decomposed": "cafe\u0301.md",
        "twin sharp s": "STRASSE.md",
        "twin ligature": "ﬁ.md",
        "twin kelvin": "\u212a.md",
    }


def _options() -> dict[str, str]:
    options = ("-", "--", "-rf", "--help", "--home", "--home=x", "-h", "--json", "--version")
    more = ("--output=x", "--exec=id", "--upload-pack=id", "-oProxyCommand=id", "--no-index", "@x")
    cases = {f"option {option}": option for option in (*options, *more)}
    return cases | {"option below": "notes/-x", "response file": "@/etc/passwd"}


def _links() -> dict[str, str]:
    """Names that the tests plant in the tree as links to what lies outside."""
    return {
        "link": "link.md",
        "link above": "linked/secret.md",
        "link above a new file": "linked/new.md",
        "link above a new directory": "linked/new/new.md",
        "link to nothing": "dangling.md",
        "link to itself": "loop.md",
        "link above to itself": "loop.md/x",
        "hard link": "hard.md",
        "fifo": "fifo.md",
        "fifo above": "fifo.md/x",
        "directory": "notes",
        "link to the root": "here/MEMORY.md",
        "link to a process": "process/environ",
    }


FAMILIES = {
    "traversal": _traversals(),
    "dots": _made_of_dots(),
    "absolute": _absolute(),
    "character": _characters(),
    "length": _lengths(),
    "name": _names(),
    "git": _git(),
    "twin": _twins(),
    "option": _options(),
    "link": _links(),
}

PAYLOADS = {
    f"{family}: {name}": text for family, cases in FAMILIES.items() for name, text in cases.items()
}
"""Name → path as it is sent. OUTSIDE stands for the canary's directory, absolute."""


def spellings(text: str) -> set[str]:
    """The path as sent, and as it comes out of one or two layers that take percent signs away:
    strictly, or leaving bytes that are no UTF-8 as surrogates, as the command line does."""
    found = {text}
    for _ in range(2):
        found |= {unquote(one) for one in found if "%" in one}
        found |= {
            unquote_to_bytes(one.encode(errors="surrogatepass")).decode(errors="surrogateescape")
            for one in found
            if "%" in one
        }
    return found
