"""What happened to a workspace: making revisions, and reading them. Every git call is here.

made     objects packfile commit branch graft → history.record · pack
travels  bundle: out · quarantine shape: in → history.follow
read     log difference step blame inquiry → history
undone   undo
lines    lines → origins origin_table: which revision brought each line
"""
