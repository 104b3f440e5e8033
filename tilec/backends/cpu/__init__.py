"""The passes that CPU targets have of their own."""
