"""`tilec completion`: the script that completes commands and options in a shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

_SHELLS = ("bash", "zsh", "fish")
#: What the script sets when it asks for completions; click's name of it for a program "tilec".
_VARIABLE = "_TILEC_COMPLETE"


@click.command("completion")
@click.argument("shell", type=click.Choice(_SHELLS))
def command(shell: str) -> None:
    """Print the completion script of SHELL.

    \b
    bash  tilec completion bash > ~/.local/share/bash-completion/completions/tilec
    zsh   tilec completion zsh > ~/.zfunc/_tilec    (a folder of fpath)
    fish  tilec completion fish > ~/.config/fish/completions/tilec.fish
    """
    from tilec.cli.main import cli

    made = get_completion_class(shell)
    assert made is not None
    click.echo(made(cli, {}, "tilec", _VARIABLE).source())
