"""Files of a shared workspace that only this machine has, without asking the store."""

from __future__ import annotations

from workspaces.home.layout import Home
from workspaces.sync.baseline import Baseline
from workspaces.tree.scan import Tree
from workspaces.workspace.workspace import Workspace


def unpushed_files(home: Home, workspace: Workspace, tree: Tree | None = None) -> tuple[str, ...]:
    """Return the paths whose content was never agreed with the store, in order.

    A file whose upload was answered but not noted is listed too, until the next sync. `tree` is a scan that
    was just made.

    Raises: Unavailable if the baseline cannot be read.
    """
    files = (tree or workspace.tree.scan()).files
    if not home.sync(workspace.namespace).exists():  # never synced
        return tuple(sorted(files))
    baseline = Baseline(home.sync(workspace.namespace))
    try:
        agreed = baseline.tree()
    finally:
        baseline.close()
    return tuple(
        path
        for path, state in sorted(files.items())
        if (known := agreed.get(path)) is None or known.version != state.version
    )
