"""`tilec`: parses the command line, runs one command, turns errors into messages and exit codes.

Commands are imported when they are called, so that `tilec --help` stays quick: this module imports neither
TVM nor NumPy, pydantic or rich.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import sys
from collections.abc import Sequence

import click

from tilec.errors import EnvironmentError_, TilecError
from tilec.settings import stand_in_for_home
from tilec.spelling import nearest

#: Command to what it does, in the order of `--help`. Each lives in tilec/cli/commands/<name>.py as `command`.
COMMANDS = {
    "init": "Create a working project: kernel, manifest, C consumer.",
    "check": "Expand and validate a manifest without compiling.",
    "build": "Build the library that a manifest describes.",
    "inspect": "Show what a library holds, without loading it.",
    "explain": "Show what each stage made of a kernel.",
    "tune": "Find the fastest config of every variant and remember it.",
    "fit": "Fit costs of schedules to their times at many shapes.",
    "verify": "Check every variant of a library against its reference.",
    "bench": "Measure a library beside what the machine can do.",
    "cache": "Show or clear the compile cache.",
    "doctor": "Say what this machine can build and run, and what is missing.",
    "completion": "Print the completion script of a shell.",
}
_INTERRUPTED = 130


class LazyGroup(click.Group):
    """A group that imports a command's module when the command is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command object, from its own module."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"tilec.cli.commands.{cmd_name}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, with the nearest name offered for an unknown command."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            raise click.UsageError(_unknown_command(args[0]), ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The table, without importing any command."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def _unknown_command(name: str) -> str:
    near = nearest(name, COMMANDS)
    hint = f" Did you mean '{near}'?" if near else ""
    return f"No such command '{name}'.{hint}"


def _print_versions(ctx: click.Context, option: click.Parameter, wanted: bool) -> None:
    """One line each; the first is tilec's."""
    if not wanted or ctx.resilient_parsing:
        return
    from tilec.cli.versions import versions

    click.echo("\n".join(f"{name} {version}" for name, version in versions().items()))
    ctx.exit()


@click.group(
    cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_versions,
    help="Show the versions of tilec and its tools and exit.",
)
def cli() -> None:
    """Turn tile kernels and a manifest into one shared library with a stable C ABI.

    Exit codes: 0 done, 1 the work failed, 2 the input is wrong, 3 the environment lacks something.
    """


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the program; exits."""
    for number in {signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)}:  # Windows has no other
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _end)
    sys.exit(run(arguments))


def _end(number: int, _frame: object) -> None:
    """Ends as an exception does, so that nothing which the command started or wrote aside is left."""
    raise SystemExit(128 + number)


def run(arguments: Sequence[str] | None = None) -> int:
    """Runs one command line and returns its exit code; messages go to stderr."""
    stand_in_for_home()
    try:
        outcome = cli.main(
            args=None if arguments is None else list(arguments), prog_name="tilec", standalone_mode=False
        )
        return outcome if isinstance(outcome, int) else 0
    except click.exceptions.Exit as wanted:
        return wanted.exit_code
    except click.ClickException as error:
        error.show()
        return 2
    except (KeyboardInterrupt, click.exceptions.Abort) as error:
        what = str(error.__cause__ or error)  # of click's own error the interrupt is the cause
        click.echo(f"interrupted; {what}" if what else "interrupted", err=True)
        return _INTERRUPTED
    except BrokenPipeError:
        _drop_output()
        return 1
    except TilecError as error:
        return _report(error)
    except Exception as error:
        if isinstance(error, OSError) and _is_of_output(error):
            return _report_output(error)
        return _report_defect(error)


def _report(error: TilecError) -> int:
    """Prints what, where (with the line and carets under the construct), why, with what, and what to do; in
    colours on a terminal."""
    _maybe_traceback()
    click.echo(f"{click.style('error:', fg='red', bold=True)} {click.style(error.what, bold=True)}", err=True)
    for label, text in error.parts():
        first, *rest = text.split("\n")
        name = click.style({"remedy": "what to do"}.get(label, label), fg="cyan")
        click.echo("\n".join([f"  {name}: {first}", *map(_continued, rest)]), err=True)
    return error.exit_code


def _continued(line: str) -> str:
    """A further line of a part of an error; carets stand out."""
    head, bar, carets = line.rpartition("| ")
    marks = bar and carets.strip("^ ") == ""
    return f"    {head}{bar}{click.style(carets, fg='red', bold=True)}" if marks else f"    {line}"


def _drop_output() -> None:
    """What is left for stdout goes nowhere, so that Python's own end does not fail, too."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _is_of_output(error: OSError) -> bool:
    """Whether it is a command's text that could not be written."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and trace.tb_frame.f_code is click.echo.__code__


def _report_output(error: OSError) -> int:
    _drop_output()
    return _report(
        EnvironmentError_(
            "standard output cannot be written",
            why=error.strerror or str(error),
            remedy="make room where it goes, or send it elsewhere",
        )
    )


def _report_defect(error: Exception) -> int:
    """An error that no layer foresaw: a defect of tilec, said as one."""
    _maybe_traceback()
    click.echo(f"error: {type(error).__name__}: {error}", err=True)
    click.echo("  why: this is a defect of tilec, not of your input", err=True)
    click.echo("  what to do: run again with TILEC_DEBUG=1 for the traceback and report it", err=True)
    return 1


def _maybe_traceback() -> None:
    """The traceback of the error at hand, when TILEC_DEBUG asks for it."""
    from tilec.settings import read_settings

    with contextlib.suppress(TilecError):
        if read_settings().debug:
            import traceback

            traceback.print_exc()


if __name__ == "__main__":
    main()
