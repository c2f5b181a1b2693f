"""Ids: namespaces, lease keys, new ids, versions."""

from __future__ import annotations

import re

from workspaces.ids import lease_key, namespace, new_id, version_of


def test_a_namespace_is_the_same_hash_on_every_machine() -> None:
    assert namespace("acct_1", "ws_a") == "fs-e14c98641c05f7c614be174b12560c61cdfbafd0"
    assert namespace("acct_test", "ws_notes") == "fs-7604ed0f7186488049bd0bcaba96ee8389c00c22"


def test_a_workspace_id_in_two_accounts_has_two_namespaces() -> None:
    assert namespace("acct_1", "ws_a") != namespace("acct_2", "ws_a")


def test_a_lease_key_hides_the_conversation_key() -> None:
    key = lease_key("acct:acct_1:agent:agent_1:api:c1")
    assert key == "conversation-lease:3f03fe805bbc7275986afff55c457f872e94d075"


def test_new_ids_have_their_prefix_and_are_unique() -> None:
    ids = {new_id("ws") for _ in range(1000)}
    assert len(ids) == 1000
    assert all(re.fullmatch(r"ws_[0-9a-f]{24}", one) for one in ids)


def test_a_version_is_the_sha256_of_the_bytes() -> None:
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert version_of(b"") == empty
