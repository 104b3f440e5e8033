"""What becomes of the statements of `AttentionRoles`: one pass a file."""
