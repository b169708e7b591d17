"""What an XID of the NVIDIA driver means and what to do (NVIDIA's XID catalogue, docs.nvidia.com/deploy/xid-errors); pure."""

from typing import Literal, NamedTuple


class Meaning(NamedTuple):
    """An XID in words; `severity` error where the device must not be used further as it is."""

    text: str
    severity: Literal["warning", "error"]
    advice: str


_RESTART = "restart the job; if it comes back on this device and not on others, run `dcgmi diag -r 3` there"
_PROGRAM = (
    "the program on the device is the usual cause: see the job's log; if other devices never show it, suspect this one"
)
_RESET = "stop what uses the device, then `nvidia-smi -r -i GPU` as root; reboot if that is refused"
_SUPPORT = "; if it comes back, have the device exchanged"
_POWER = (
    "reboot the host; then check the seating, power cables and cooling of this device and `lspci -vv` for its link; "
    "if it comes back, have it exchanged"
)
_MEANINGS = {
    8: Meaning("the device stopped processing", "warning", _RESTART),
    13: Meaning("an exception in a kernel", "warning", _PROGRAM),
    31: Meaning("an illegal memory access of a kernel", "warning", _PROGRAM),
    32: Meaning("a corrupted stream of commands", "warning", _RESTART),
    43: Meaning("a kernel was ended by a fault of its own", "warning", _PROGRAM),
    45: Meaning(
        "work was removed from the device, after another error or because its process was killed", "warning", _PROGRAM
    ),
    46: Meaning("the device stopped processing", "error", _RESET + _SUPPORT),
    48: Meaning("an uncorrectable memory error", "error", _RESET + _SUPPORT),
    61: Meaning("its microcontroller stopped at a fault", "error", _RESET + _SUPPORT),
    62: Meaning("its microcontroller halted", "error", _RESET + _SUPPORT),
    63: Meaning("a memory row is marked for remapping", "warning", _RESET + ", which remaps the row"),
    64: Meaning("a memory row could not be remapped", "error", _RESET + _SUPPORT),
    69: Meaning("an illegal command of a kernel", "warning", _PROGRAM),
    74: Meaning("an error on NVLink", "error", _RESET + "; check the bridge or the switch" + _SUPPORT),
    79: Meaning("it has fallen off the bus", "error", _POWER),
    92: Meaning(
        "many corrected memory errors", "warning", "watch it; run `dcgmi diag -r 3` when it is free" + _SUPPORT
    ),
    94: Meaning(
        "a memory error that hit one program only", "warning", "restart that job; " + _RESET + " when it is free"
    ),
    95: Meaning("a memory error that may have hit every program on it", "error", _RESET + " now" + _SUPPORT),
    109: Meaning("a switch between programs timed out", "warning", _RESTART),
    119: Meaning("its firmware (GSP) did not answer in time", "error", _RESET + "; update the driver if it comes back"),
    120: Meaning("an error in its firmware (GSP)", "error", _RESET + "; update the driver if it comes back"),
    140: Meaning("an uncorrected memory error", "error", _RESET + _SUPPORT),
    143: Meaning("it could not be initialised", "error", _RESET + _SUPPORT),
    154: Meaning(
        "the driver changed what it advises for recovery",
        "error",
        "`nvidia-smi -q -i GPU` shows the GPU recovery action: follow it",
    ),
}
_OTHER = Meaning(
    "see NVIDIA's XID catalogue", "warning", "`dmesg | grep -i xid` on the host, then NVIDIA's XID catalogue"
)


def meaning_of(xid: int) -> Meaning:
    """What is known of an XID."""
    return _MEANINGS.get(xid, _OTHER)


def xid_text(xid: int) -> str:
    """An XID with its meaning, as an event says it."""
    return f"XID {xid}: {meaning_of(xid).text}"
