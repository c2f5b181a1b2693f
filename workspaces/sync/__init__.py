"""Keep the files on this machine and the objects in S3 the same. `sync.engine` explains the theory.

    observed   counted_store, survey: the files here, the objects there, and the baseline → a survey;
               read_cache: a file that the survey has read is not read again to be sent
    applied    incoming, outgoing: each returns the paths that must be planned again;
               thread_pool: many requests at once
    reported   report

`reconcile` decides each action. `baseline` stores the last state on which both sides agreed.
"""
