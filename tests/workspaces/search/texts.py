"""A source in memory, which counts what is read of it."""

from __future__ import annotations


class Texts:
    def __init__(self, **texts: str) -> None:
        self.reads: list[str] = []
        self._texts: dict[str, str] = {}
        self._states: dict[str, int] = {}
        for name, text in texts.items():
            self.set(f"{name}.md", text)

    def set(self, name: str, text: str | None) -> None:
        self._states[name] = self._states.get(name, 0) + 1
        if text is None:
            del self._texts[name]
        else:
            self._texts[name] = text

    def states(self) -> dict[str, str]:
        return {name: str(self._states[name]) for name in self._texts}

    def read(self, name: str) -> bytes | None:
        self.reads.append(name)
        return self._texts[name].encode() if name in self._texts else None
