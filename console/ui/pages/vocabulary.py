"""The draft vocabulary and its mapping."""

from rich.console import RenderableType

from console.ui.pages.page import TextPage
from console.ui.views.vocabulary import vocabulary_view
from console.ui.widgets.glance import Glance


class VocabularyPage(TextPage):
    """What is known of the newest run's mapping."""

    NAME = "vocabulary"

    def view(self, glance: Glance, width: int) -> RenderableType:  # noqa: ARG002 - the interface of all pages
        """The mapping."""
        return vocabulary_view(glance.state, glance.palette)
