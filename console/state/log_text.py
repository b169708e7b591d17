"""Log bytes to text, piece by piece: characters and sequences that are cut in two by the pieces are put together again."""

import codecs
import re

from console.state.sanitize import sanitize_log

_MOST_WAITING = 4096
_BEGUN = re.compile(
    r"(?:\x1b(?:\[[0-?]*[ -/]*|[ -/]*)|\x9b[0-?]*[ -/]*|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c\n\r]*\x1b?|\r)\Z"
)


class LogText:
    """Turns the bytes of one log into harmless text with its colours left in."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._waiting = ""

    def feed(self, data: bytes, *, final: bool = False) -> str:
        """The text of the next bytes; what they leave unfinished waits for more unless they are the `final` ones."""
        text = self._waiting + self._decoder.decode(data, final)
        begun = None if final else _BEGUN.search(text, max(0, len(text) - _MOST_WAITING))
        end = len(text) if begun is None else begun.start()
        self._waiting = text[end:]
        return sanitize_log(text[:end])
