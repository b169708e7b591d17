"""The part of Roost that runs on the operator's machine: the screen, the `roost` command and the link to the hosts."""
