"""What a manifest's text is read with: lines of keys, small expressions, what pydantic found wrong."""
