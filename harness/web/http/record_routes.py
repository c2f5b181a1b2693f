"""The routes that every family of records has: make, list, show, change, delete.

A family states what it is called, what it looks like, and which part of the caller's rooms keeps it.
Nothing is judged here: what may stand in a record is refused by its shape, and what a caller may do by
the rooms.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Generic, Literal, TypeVar

from fastapi import APIRouter, Path, Request
from fastapi import Query as QueryOf

from harness.bootstrap.composition import PrincipalServices
from harness.web.http.body import Fields, JsonObject
from harness.web.http.caller import Caller, address_of, documented_bearer
from harness.web.http.errors import Json
from harness.web.http.route import Route
from harness.web.http.route_docs import (
    DELETED,
    EVERYWHERE,
    READING_JSON,
    Query,
    Schema,
    Switch,
    answers,
    list_of,
    object_of,
    patch_of,
    refusals,
    schema_of,
    takes,
)
from workspaces.accounts.record_catalog import GIVEN
from workspaces.validation import StrictModel

R = TypeVar("R", bound=StrictModel)

ReferenceParameter = Annotated[str, Path(alias="id", description="The id, or the name.")]


class DeleteQuery(Query):
    force: Switch = False


@dataclass(frozen=True, slots=True)
class RecordRoutes(Generic[R]):
    one: str
    """As in `an agent`."""
    plural: Literal["users", "workspaces", "sandboxes", "agents"]
    shape: type[R]
    new: Schema
    """What a caller may say of a new one."""
    example: JsonObject
    """A record as it is shown; what is new in it is also the example of what is sent."""
    patch: JsonObject
    """An example."""
    create: Callable[[PrincipalServices, JsonObject], R]
    list: Callable[[PrincipalServices], Sequence[R]]
    get: Callable[[PrincipalServices, str], R]
    change: Callable[[PrincipalServices, str, JsonObject], R]
    delete: Callable[[PrincipalServices, str, bool], object]
    about: str
    is_referenced: bool = True
    """By other records, so that its deletion may have to be forced."""


def new_schema(shape: type[StrictModel], *also: str) -> Schema:
    """What may be said of a new record: all but what the system gives."""
    return schema_of(shape, without=(*GIVEN, *also))


def record_router(family: RecordRoutes[R]) -> APIRouter:
    router = APIRouter(
        route_class=Route,
        prefix=f"/accounts/me/{family.plural}",
        tags=[family.plural],
        dependencies=[documented_bearer],
        responses=refusals(*EVERYWHERE),
    )
    one, shape, example = family.one, family.shape, family.example
    stated = {name: value for name, value in example.items() if name not in GIVEN}

    def create(request: Request, caller: Caller, fields: Fields) -> Json:
        record = family.create(caller, fields).as_json()
        place = f"/accounts/me/{family.plural}/{record['id']}"
        return Json(record, 201, {"Location": address_of(request, place)})

    def list_(caller: Caller) -> Json:
        return Json({family.plural: [record.as_json() for record in family.list(caller)]})

    def show(caller: Caller, reference: ReferenceParameter) -> Json:
        return Json(family.get(caller, reference).as_json())

    def change(caller: Caller, reference: ReferenceParameter, patch: Fields) -> Json:
        return Json(family.change(caller, reference, patch).as_json())

    def delete(
        caller: Caller, reference: ReferenceParameter, query: Annotated[DeleteQuery, QueryOf()]
    ) -> Json:
        family.delete(caller, reference, query.force)
        return Json({"deleted": True})

    def delete_unforced(caller: Caller, reference: ReferenceParameter) -> Json:
        family.delete(caller, reference, False)
        return Json({"deleted": True})

    def add(method: str, path: str, endpoint: Callable[..., Json], does: str, **told: Any) -> None:
        route: dict[str, Any] = {"summary": does, "response_model": None, **told}
        router.add_api_route(path, endpoint, methods=[method], **route)

    add(
        "POST",
        "",
        create,
        f"Make {one}",
        description=family.about,
        status_code=201,
        responses={
            **answers(shape, example, status=201, description="It was made."),
            **refusals(409, *READING_JSON),
        },
        openapi_extra=takes(family.new, stated),
    )
    items = object_of({family.plural: list_of(schema_of(shape))})
    listed = answers(items, {family.plural: [example]})
    add("GET", "", list_, f"List the {family.plural}", responses=listed)
    add("GET", "/{id}", show, f"Show {one}", responses=answers(shape, example))
    add(
        "PATCH",
        "/{id}",
        change,
        f"Change {one}",
        description="A merge patch (RFC 7396): null takes a key away, objects merge, the rest replaces.",
        responses={
            **answers(shape, {**example, **family.patch}),
            **refusals(409, *READING_JSON),
        },
        openapi_extra=takes(patch_of(family.new), family.patch, patch=True),
    )
    ending = delete if family.is_referenced else delete_unforced
    deleted = {**answers(DELETED, {"deleted": True}), **refusals(409)}
    add("DELETE", "/{id}", ending, f"Delete {one}", responses=deleted)
    return router
