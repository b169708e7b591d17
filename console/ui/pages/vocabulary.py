"""The mappings of a host, one at a time in full; measuring and copying need a plan and a yes."""

from rich.console import Group, RenderableType
from rich.text import Text

from console.errors import ConsoleError
from console.state.mappings import absolute, copy_consequence, coverage_job, mapping_paths, why_not_copied
from console.state.sanitize import one_line
from console.state.units import format_bytes
from console.ui.keymap import VOCABULARY_ACTIONS, bindings
from console.ui.messages import AskWanted
from console.ui.pages.page import TextPage
from console.ui.screens.dialogs import AskLine, Confirm, command_line, intent_body
from console.ui.session import HostSession
from console.ui.views.vocabulary import vocabulary_view
from console.ui.widgets.glance import Glance
from console.ui.words import below_root
from remote.protocol.mappings import CoverageReport, MappingCoverageSpec, TokenSource
from remote.protocol.reports import MappingInspection

_MISSING = 30


class VocabularyPage(TextPage):
    """Findings, provenance, uses, coverage and what is missing of the mapping that is chosen; the newest at first."""

    NAME = "vocabulary"
    BINDINGS = bindings(VOCABULARY_ACTIONS)
    asks_every_s = 30.0

    def __init__(self) -> None:
        super().__init__()
        self._named: list[str] = []
        self._paths: list[str] = []
        self._chosen: str | None = None
        self._asked: tuple[str | None, str | None] = (None, None)
        self._coverage_job: str | None = None
        self._found: dict[str, MappingInspection] = {}
        self._coverage: dict[str, CoverageReport] = {}

    async def ask(self, session: HostSession) -> None:
        """What there is to know of the chosen mapping."""
        path, job_id = self._chosen, self._coverage_job
        if path is None:
            return
        try:
            self._found[path] = await session.inspect_mapping(path)
        except ConsoleError:
            self._found.pop(path, None)
            raise
        if job_id is not None and job_id not in self._coverage:
            self._coverage[job_id] = await session.read_coverage(job_id)

    def show_content(self, glance: Glance) -> None:
        """Draw what is known; another mapping, or a coverage that was just measured, is asked for at once."""
        root = "" if glance.state.welcome is None else glance.state.welcome.root
        jobs = glance.state.ordered_jobs()
        self._paths = list(dict.fromkeys([*self._named, *mapping_paths(jobs, root)]))
        if self._chosen not in self._paths:
            self._chosen = self._paths[0] if self._paths else None
        measured = None if self._chosen is None else coverage_job(jobs, self._chosen, root)
        self._coverage_job = None if measured is None else measured.job_id
        if (self._chosen, self._coverage_job) != self._asked and self._chosen is not None:
            self._asked = (self._chosen, self._coverage_job)
            self.post_message(AskWanted())
        super().show_content(glance)

    def view(self, glance: Glance, width: int) -> RenderableType:
        """The mapping."""
        palette, path = glance.palette, self._chosen
        if path is None:
            words = "no mapping yet: a run builds or copies one after its extraction; i inspects one by its path"
            return Text(words, style=palette.quiet)
        heading = Text(one_line(below_root(path, glance.state)), style=f"bold {palette.primary}")
        if len(self._paths) > 1:
            at = self._paths.index(path) + 1
            heading.append(f"   mapping {at} of {len(self._paths)}, n shows the next", style=palette.quiet)
        found = self._found.get(path)
        if found is None:
            words = Text(f"✗ {self.failed}", style=palette.error) if self.failed else Text("the host reads it")
            return Group(heading, words)
        return Group(
            heading,
            vocabulary_view(found, self._coverage.get(self._coverage_job or ""), glance.state, palette, width),
        )

    def action_next_mapping(self) -> None:
        """Another mapping."""
        if len(self._paths) <= 1:
            self.notify("There is no other mapping that a job knows of; i inspects one by its path.")
        elif self._chosen is not None:
            self._choose(self._paths[(self._paths.index(self._chosen) + 1) % len(self._paths)])

    def action_inspect_mapping(self) -> None:
        """A mapping that no job knows of."""
        self.run_operation(self._inspect())

    def action_measure_coverage(self) -> None:
        """How much it covers."""
        self.run_operation(self._measure())

    def action_copy_mapping(self) -> None:
        """To another place."""
        self.run_operation(self._copy())

    def _choose(self, path: str) -> None:
        self._chosen = path
        self.failed = ""
        self.post_message(AskWanted())

    async def _inspect(self) -> None:
        question = AskLine(
            "Inspect a mapping",
            "Its directory or file on the host, in any trainer's layout; absolute, or below the host's root:",
            "",
            then="Enter reads and checks it.",
        )
        path = await self.app.push_screen_wait(question)
        if path is not None:
            path = absolute(path, self.root)
            self._named = [path, *(each for each in self._named if each != path)]
            self._paths = [path, *(each for each in self._paths if each != path)]
            self._choose(path)

    def _chosen_mapping(self) -> MappingInspection | None:
        found = self._found.get(self._chosen or "")
        if found is None:
            self.notify("Nothing is known of a mapping here.")
        return found

    async def _measure(self) -> None:
        found = self._chosen_mapping()
        if found is None or self.session is None:
            return
        question = AskLine(
            "Measure coverage",
            "In which answers on the host? A store, a JSONL file of conversations, or kept counts:",
            found.counts or "",
            then="Enter shows what will be done.",
        )
        source = await self.app.push_screen_wait(question)
        if source is None:
            return
        path = found.report.path
        body = intent_body(
            self.host_name,
            [
                ("mapping", path),
                ("reads", f"every answer token of {source}"),
                ("writes", "a report into the job's own directory, nothing else"),
            ],
            command_line(self.host_name, "vocabulary", "coverage", path, "--from", source, "--missing", str(_MISSING)),
        )
        if await self.app.push_screen_wait(Confirm("Measure coverage?", body, yes="Measure it")):
            spec = MappingCoverageSpec(mapping=path, sources=[TokenSource(path=source)], missing=_MISSING)
            job = await self.session.measure_coverage(spec)
            self.notify(f"Started {job.job_id}; its figures appear here.", markup=False)

    async def _copy(self) -> None:
        found = self._chosen_mapping()
        if found is None or self.session is None:
            return
        source = found.report
        why_not = why_not_copied(source)
        if why_not is not None:
            self.notify(why_not, severity="warning", markup=False)
            return
        question = AskLine(
            "Copy a mapping",
            "Where to? A path on this host, absolute or below its root, or HOST:PATH for another configured host:",
            "",
            then="Enter looks what lies there and shows what will be done.",
        )
        answer = await self.app.push_screen_wait(question)
        if answer is None:
            return
        host, _, path = answer.rpartition(":")
        there = await self.session.find_mapping(path, host=host)
        consequence = copy_consequence(source, there)
        if not consequence.is_needed:
            self.notify(f"{answer}: {consequence.words}. There is nothing to do.", markup=False)
            return
        files = f"{len(source.files)} files, {format_bytes(sum(file.bytes for file in source.files))}"
        to = ("--to", host) if host else ()
        replace = ("--replace",) if consequence.replaces else ()
        body = intent_body(
            self.host_name,
            [
                ("copies", f"{source.path}, {files}, hashed on the way"),
                ("to", path if not host else f"{path} on {host}"),
                ("there", consequence.words),
            ],
            command_line(self.host_name, "vocabulary", "copy", source.path, path, *to, *replace),
        )
        yes = "Put the other aside and copy" if consequence.replaces else "Copy it"
        if await self.app.push_screen_wait(Confirm("Copy a mapping?", body, yes=yes)):
            job = await self.session.copy_mapping(source.path, path, host=host, replace=consequence.replaces)
            self.notify(f"Started {job.job_id} on {host or self.host_name}.", markup=False)
