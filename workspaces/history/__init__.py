"""The history of a workspace: make revisions, read them, exchange them, revert them. Every git call is here.

write      git/objects, packfile, commit, tree_edit, branch → history.record · git/repack → history.pack
exchange   out: git/bundle · in: git/quarantine, tree_check → history.receive, history.follow
read       log, diff, revision_step, blame, safe_git_command → history
revert     line_identity: where the lines of a revision are now → revert
lines      line_matching → line_origins, line_origin_table: which revision wrote each line
"""
