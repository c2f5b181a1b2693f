"""The routes that every kind of record has: create, list, show, change, delete.

A `RecordRoutes` states the name of a kind, its model, and the functions of the caller's services that store
it. This module checks nothing. The record's model validates its fields, and the services check the caller's
rights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Generic, Literal, TypeVar

from fastapi import APIRouter, Path, Request
from fastapi import Query as QueryOf

from harness.bootstrap.services.principal_services import PrincipalServices
from harness.web.http.body import Fields, JsonObject
from harness.web.http.caller import Caller, address_of, documented_bearer
from harness.web.http.errors import Json
from harness.web.http.pagination import page_model, whole
from harness.web.http.route import Route
from harness.web.http.route_docs import (
    EVERYWHERE,
    READING_JSON,
    DeletionDocument,
    Query,
    Schema,
    Switch,
    answers,
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
    """The description of one kind of record, from which its routes are made."""

    one: str
    """The singular with its article, as in `an agent`."""
    plural: Literal["users", "workspaces", "sandboxes", "agents"]
    shape: type[R]
    new: Schema
    """The fields that a caller may send for a new record."""
    example: JsonObject
    """A record as it is shown. Its fields that `new` allows are also the example of a request."""
    patch: JsonObject
    """An example of a patch."""
    create: Callable[[PrincipalServices, JsonObject], R]
    list: Callable[[PrincipalServices], Sequence[R]]
    get: Callable[[PrincipalServices, str], R]
    change: Callable[[PrincipalServices, str, JsonObject], R]
    delete: Callable[[PrincipalServices, str, bool], object]
    about: str
    is_referenced: bool = True
    """True if other records may refer to it. Then a deletion may need `force`."""


def new_schema(shape: type[StrictModel], *also: str) -> Schema:
    """Return the schema of a new record: all fields except those that the system sets."""
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
    sent = {name: value for name, value in example.items() if name not in GIVEN}

    def create(request: Request, caller: Caller, fields: Fields) -> Json:
        record = family.create(caller, fields).as_json()
        path = f"/accounts/me/{family.plural}/{record['id']}"
        return Json(record, 201, {"Location": address_of(request, path)})

    def list_(caller: Caller) -> Json:
        records = (record.as_json() for record in family.list(caller))
        return Json(whole(family.plural, records))

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

    def add(
        method: str, path: str, endpoint: Callable[..., Json], summary: str, **options: Any
    ) -> None:
        route: dict[str, Any] = {"summary": summary, **options}
        router.add_api_route(path, endpoint, methods=[method], **route)

    add(
        "POST",
        "",
        create,
        f"Create {one}",
        description=family.about,
        status_code=201,
        responses={
            **answers(shape, example, status=201, description="The record was created."),
            **refusals(409, *READING_JSON),
        },
        openapi_extra=takes(family.new, sent),
    )
    listed = answers(page_model(family.plural, shape), whole(family.plural, [example]))
    add("GET", "", list_, f"List the {family.plural}", responses=listed)
    add("GET", "/{id}", show, f"Show {one}", responses=answers(shape, example))
    add(
        "PATCH",
        "/{id}",
        change,
        f"Change {one}",
        description="A JSON merge patch (RFC 7396): null removes a key, objects merge, other values replace.",
        responses={
            **answers(shape, {**example, **family.patch}),
            **refusals(409, *READING_JSON),
        },
        openapi_extra=takes(patch_of(family.new), family.patch, patch=True),
    )
    ending = delete if family.is_referenced else delete_unforced
    deleted = {**answers(DeletionDocument, {"deleted": True}), **refusals(409)}
    add("DELETE", "/{id}", ending, f"Delete {one}", responses=deleted)
    return router
