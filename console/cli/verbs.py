"""What every verb has in common: the options of its JSON, and errors of the command line that are documents, too."""

import sys
from collections.abc import Callable, Sequence
from functools import cache
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from console.cli import manners
from console.cli.output import print_document
from remote.protocol.errors import ErrorCode, ErrorInfo

_CommandLineError: type[Exception] = typer.BadParameter.__bases__[0].__bases__[0]
"""The root of what Typer raises for a command line that is wrong; it has no public name."""


@cache
def _shared_options() -> list[Any]:
    shared = typer.Typer(add_completion=False)

    @shared.command()
    def _verb(
        fields: Annotated[
            str | None,
            typer.Option(
                metavar="A,B.C", help="With --json: only these fields of the document, or of every item of a list."
            ),
        ] = None,
        no_input: Annotated[  # noqa: FBT002
            bool, typer.Option("--no-input", help="Never ask: what needs an answer fails (exit code 6).")
        ] = False,
    ) -> None: ...

    return [option for option in typer.main.get_command(shared).params if option.name != "help"]


class Verb(TyperCommand):
    """A verb; one that has --json has --fields and --no-input besides."""

    def __init__(self, *args: Any, params: list[Any] | None = None, **settings: Any) -> None:  # noqa: ANN401 - Typer's
        params = list(params or [])
        if any(parameter.name == "as_json" for parameter in params):
            params += _shared_options()
        super().__init__(*args, params=params, **settings)

    def invoke(self, ctx: typer.Context) -> Any:  # noqa: ANN401 - Typer's
        """Take the shared options away before the verb sees them."""
        fields, no_input = ctx.params.pop("fields", None), ctx.params.pop("no_input", False)
        with manners.manners(fields=self._fields(ctx, fields), asks=not no_input and not ctx.params.get("as_json")):
            return super().invoke(ctx)

    def _fields(self, ctx: typer.Context, text: str | None) -> list[str] | None:
        if text is None:
            return None
        if not ctx.params.get("as_json"):
            raise typer.BadParameter("--fields needs --json", ctx=ctx)
        from console.cli.spec import documents_of  # noqa: PLC0415 - only when it is used
        from console.documents import UnknownField, require_field  # noqa: PLC0415

        names = documents_of(_words(ctx))
        paths = [path.strip() for path in text.split(",")]
        try:
            for path in paths:
                require_field(names, path)
        except UnknownField as error:
            raise typer.BadParameter(str(error), ctx=ctx, param_hint="--fields") from None
        return paths


def _words(context: typer.Context) -> list[str]:
    """The words of a verb: `["server", "plan"]`."""
    words: list[str] = []
    place: typer.Context | None = context
    while place is not None and place.parent is not None:
        words.insert(0, str(place.info_name))
        place = place.parent  # pyright: ignore[reportAssignmentType] - Typer's own context
    return words


class Root(TyperGroup):
    """The `roost` command: what is wrong on its command line is an error document where --json was asked for."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,  # noqa: FBT001, FBT002 - Typer's
        windows_expand_args: bool = True,  # noqa: FBT001, FBT002
        **extra: Any,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        """Run and exit with the verb's code."""
        if not standalone_mode:
            return super().main(args, prog_name, complete_var, standalone_mode, windows_expand_args, **extra)
        words = list(sys.argv[1:] if args is None else args)
        try:
            code = super().main(words, prog_name, complete_var, False, windows_expand_args, **extra)  # noqa: FBT003
        except _CommandLineError as error:
            sys.exit(_show(error, as_json="--json" in words))
        except typer.Abort:
            sys.stderr.write("Aborted.\n")
            sys.exit(1)
        sys.exit(code if isinstance(code, int) else 0)


def _show(error: Any, *, as_json: bool) -> int:  # noqa: ANN401 - Typer's
    if as_json:
        print_document("error", ErrorInfo(code=ErrorCode.USAGE, message=error.format_message(), hint=_way_out(error)))
    error.show()
    return error.exit_code


def _way_out(error: Any) -> str | None:  # noqa: ANN401 - Typer's
    """What the command that was not understood has: its verbs, or where its options are described."""
    context = getattr(error, "ctx", None)
    if context is None:
        return None
    if isinstance(context.command, TyperGroup):
        return f"the verbs of `{context.command_path}` are {', '.join(context.command.commands)}"
    return f"`{context.command_path} --help` describes it"


class Verbs(typer.Typer):
    """A group of verbs."""

    def command(self, name: str | None = None, **settings: Any) -> Callable[[Any], Any]:  # noqa: ANN401 - Typer's
        """As Typer's, for verbs."""
        return super().command(name, cls=Verb, **settings)
