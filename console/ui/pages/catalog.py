"""Which class draws which page; a page is added here and in `keymap.PAGES`."""

from console.ui.pages.hosts import HostsPage
from console.ui.pages.logs import LogsPage
from console.ui.pages.page import Page
from console.ui.pages.pipeline import PipelinePage
from console.ui.pages.server import ServerPage
from console.ui.pages.storage import StoragePage
from console.ui.pages.training import TrainingPage
from console.ui.pages.vocabulary import VocabularyPage

PAGE_KINDS: dict[str, type[Page]] = {
    kind.NAME: kind
    for kind in (PipelinePage, LogsPage, TrainingPage, VocabularyPage, StoragePage, ServerPage, HostsPage)
}
