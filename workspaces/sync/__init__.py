"""Sync: the files here and the objects in S3 become one. The theory stands at the top of `sync`.

seen     store, sides: what is here, what is there, what was agreed on → survey
done     incoming, outgoing: each returns what must be planned again; crowd: many requests at once;
         in_hand: what was read to be looked at is not read again to be sent
told     report

What is decided in between is decided in `reconcile`, and what was agreed on stands in `baseline`.
"""
