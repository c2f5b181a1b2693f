"""Take plain values of the command line without the library that validates all others.

typer makes a pydantic adapter for each argument and option, also for those that were not given. Importing
pydantic takes longer than most commands. So texts, switches and numbers are taken as they are, and typer's
adapter is made for a value that must be converted or refused.
"""

from __future__ import annotations

from typing import Any, Literal, get_args, get_origin

from typer._coercion import TypeDescriptor, build_runtime_param


class PlainValue:
    """The value of one argument or option. It stands in the place of typer's own `RuntimeParam`."""

    def __init__(self, descriptor: TypeDescriptor) -> None:
        self._descriptor = descriptor

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the value as the command takes it.

        Raises: BadParameter.
        """
        parser = self._descriptor.parameter_info.parser
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        if parser is not None and isinstance(value, str):
            try:
                return parser(value)
            except ValueError:  # typer says what is wrong with it
                pass
        elif self._is_plain(value):
            return value
        elif self._are_plain_texts(value):
            return list(value)
        return build_runtime_param(self._descriptor).coerce(value, param=param, ctx=ctx)

    def _is_plain(self, value: Any) -> bool:
        annotation, info = self._descriptor.annotation, self._descriptor.parameter_info
        if get_origin(annotation) is Literal:
            return type(value) is str and value in get_args(annotation)
        if type(value) is not annotation or annotation not in (str, bool, int, float):
            return False
        is_low = info.min is not None and value < info.min
        return not is_low and (info.max is None or value <= info.max)

    def _are_plain_texts(self, values: Any) -> bool:
        annotation: Any = self._descriptor.annotation
        is_list = get_origin(annotation) is list and get_args(annotation) == (str,)
        return is_list and type(values) in (tuple, list) and all(type(one) is str for one in values)


def take_plain_values(command: Any, ctx: Any) -> None:
    """Let a command, and those below it, take plain values as they are. `ctx` names the option for help."""
    for param in command.get_params(ctx):
        if getattr(param, "_runtime_param", ...) is None:  # typer would make the adapter now
            param._runtime_param = PlainValue(param.type_descriptor)
    for below in getattr(command, "commands", {}).values():
        take_plain_values(below, ctx)
