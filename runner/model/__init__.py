"""The records: one noun a file, frozen, nothing extra allowed."""
