"""The newest run, stage by stage."""

from rich.console import RenderableType

from console.ui.pages.page import TextPage
from console.ui.views.pipeline import pipeline_view
from console.ui.widgets.glance import Glance


class PipelinePage(TextPage):
    """Stages with their jobs, what they made, and where it comes from."""

    NAME = "pipeline"

    def view(self, glance: Glance, width: int) -> RenderableType:
        """The newest run's pipeline."""
        return pipeline_view(glance.state, glance.host_now, glance.palette, width)
