"""Facts: one file each, shown as rows with a key."""
