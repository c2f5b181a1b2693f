"""The trash over HTTP: listed, restored and removed by the account alone."""

from __future__ import annotations

from tests.harness.web.site import Site
from workspaces.home.workspaces import private_to_user


def test_a_deleted_workspace_is_listed_comes_back_and_goes_for_good(site: Site) -> None:
    caller = site.account("acme")
    workspace = caller.workspace("plans")
    caller.file(workspace, "a.md", b"the fair is in May\n")
    caller("DELETE", f"/accounts/me/workspaces/{workspace}")
    (one,) = caller.list("/v1/trash", "trash")
    assert (one["name"], one["workspaceId"], one["why"]) == ("plans", workspace, "here")
    assert one["files"] > 0 < one["bytes"] and one["unpushed"] == [] and one["isRestorable"]
    assert str(site.harness.settings.home.root) not in str(one)

    taken = caller.workspace("taken")
    path = f"/v1/trash/{one['id']}"
    caller.refused(409, "POST", f"{path}/restore", json={"name": "taken"})
    caller.refused(400, "POST", f"{path}/restore", json={"name": ""})
    caller.refused(404, "DELETE", f"/v1/trash/{workspace}")  # its own id names no deletion
    answer = caller("POST", f"{path}/restore", json={"name": "back"})
    back = answer.json()
    assert answer.status_code == 201 and back["id"] not in (workspace, taken)
    assert caller.get(answer.headers["Location"])["name"] == "back"
    assert caller("GET", f"/v1/workspaces/{back['id']}/files/a.md").text == "the fair is in May\n"
    caller.refused(404, "POST", f"{path}/restore", json={})

    caller("DELETE", f"/accounts/me/workspaces/{back['id']}")
    (again,) = caller.list("/v1/trash", "trash")
    assert caller("DELETE", f"/v1/trash/{again['id']}").json() == {"deleted": True}
    assert caller.list("/v1/trash", "trash") == []
    caller.refused(404, "DELETE", f"/v1/trash/{again['id']}")


def test_a_user_sees_no_trash_and_an_account_only_its_own(site: Site) -> None:
    caller, other = site.account("acme"), site.account("bolt")
    caller("DELETE", f"/accounts/me/workspaces/{caller.workspace('plans')}")
    (one,) = caller.list("/v1/trash", "trash")
    ada = caller.user_key("ada")
    for method, path in (
        ("GET", "/v1/trash"),
        ("POST", f"/v1/trash/{one['id']}/restore"),
        ("DELETE", f"/v1/trash/{one['id']}"),
    ):
        ada.refused(403, method, path, **({"json": {}} if method == "POST" else {}))
    assert other.list("/v1/trash", "trash") == []
    other.refused(404, "DELETE", f"/v1/trash/{one['id']}")
    assert caller.list("/v1/trash", "trash") == [one]


def test_what_was_private_to_a_user_is_counted_and_not_shown(site: Site) -> None:
    caller = site.account("acme")
    user = caller.post("/accounts/me/users", {"name": "ada"})["id"]
    house = site.harness.house
    rooms = house.rooms(house.accounts.owner(house.accounts.get("acme")))
    workspace = rooms.workspaces.private(private_to_user(user), create=True)
    assert workspace is not None
    workspace.write("diary.md", "tea\n", by=rooms.principal.author("api"))
    caller("DELETE", f"/accounts/me/users/{user}")
    gone = caller.list("/v1/trash", "trash")
    assert gone and not any(one["isRestorable"] for one in gone)
    for one in gone:
        path = f"/v1/trash/{one['id']}"
        told = caller.refused(400, "POST", f"{path}/restore", json={"name": "hers"})["message"]
        assert "private to another user" in told
        assert caller("DELETE", path).status_code == 200
    assert caller.list("/v1/trash", "trash") == []
