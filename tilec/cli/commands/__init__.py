"""The commands, a file each, named as the command is: `command` is what click calls."""
