"""The pages of the screen beside the overview; `keymap.PAGES` has their keys, `catalog.PAGE_KINDS` their classes."""
