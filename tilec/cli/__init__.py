"""The command line: one file per command, each a thin call into the layers below."""
