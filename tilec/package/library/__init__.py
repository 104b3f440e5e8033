"""The library's file: the runtime that it carries, the link, what it says of itself, and reading that."""
