"""The plots of a training and of the host under it, pure: everything that was read along one axis."""

from collections.abc import Callable
from functools import partial

from console.state.host import Curves, HostState
from console.state.plots import Curve, Plot, Point
from console.state.readings import SPAN_S, Readings
from console.state.series import TimeSeries
from console.state.units import format_count, format_percent, format_rate
from remote.protocol.progress import StepLogged

_COLORS = ("success", "primary", "accent", "warning")
_ORDINALS = ("1st", "2nd", "3rd")
_LAST = ("gradient norm", "learning rate")
"""What is left out first where there is no room."""
_tokens = partial(format_rate, unit="tok")


def training_plots(state: HostState, training: Curves | None, other: Curves | None = None) -> list[Plot]:
    """Loss, accuracy, acceptance and rates of a training, dotted over them those of another, and what the host did in that time or since then.

    Of a training that was over long before the first reading of the host that is known, its own alone.
    """
    own = [] if training is None else curves_of_training(training)
    host = host_plots(state.readings)
    if other is not None:
        own = _joined(own, curves_of_training(other, run="other", dotted=True))
    if not own or training is None or not training.steps or not host:
        return own or host
    oldest = min(curve.points[0].at for plot in host for curve in plot.curves)
    if oldest > training.steps[-1].at + SPAN_S:
        return own
    return sorted(_joined(own, host), key=lambda plot: plot.title in _LAST)


def curves_of_training(training: Curves, *, run: str = "", dotted: bool = False) -> list[Plot]:
    """A training's own plots; with the name of its `run`, and `dotted`, they can be joined with those of another."""
    if not training.steps:
        return []
    of = f"{run} " if run else ""

    def curve(
        name: str, short: str, words: Callable[[float], str], value: Callable[[StepLogged], float | None], color: str
    ) -> Curve:
        points = [Point(at, step.step, value(step)) for at, step in training.steps]
        return Curve(f"{of}{name}", f"{of}{short}", words, points, color, dotted)

    positions = range(max(len(each.step.accuracy) for each in training.steps))
    accuracy = [
        curve(
            f"{_ordinal(at)} draft token",
            _ordinal(at),
            format_percent,
            partial(_accuracy, at),
            _COLORS[at % len(_COLORS)],
        )
        for at in positions
    ]
    validated = [Point(at, each.step, each.acceptance_length) for at, each in training.measured]
    acceptance = [
        curve("acceptance on trained text", "trained", _length, lambda step: step.acceptance_length, "success"),
        Curve(f"{of}acceptance on validation text", f"{of}validation", _length, validated, "accent", dotted),
    ]
    return _known(
        Plot("training loss", [curve("training loss", "loss", _loss, lambda step: step.loss, "accent")], format_count),
        Plot("accuracy", accuracy, format_percent, low=0.0),
        Plot("acceptance length", acceptance, _length, low=1.0),
        Plot(
            "training tok/s",
            [curve("training", "training", _tokens, lambda step: step.tokens_per_s, "primary")],
            format_count,
            0.0,
        ),
        Plot(
            "gradient norm",
            [curve("gradient norm", "norm", _loss, lambda step: step.gradient_norm, "warning")],
            format_count,
            0.0,
        ),
        Plot(
            "learning rate",
            [curve("learning rate", "rate", _small, lambda step: step.learning_rate, "success")],
            _small,
            0.0,
        ),
    )


def host_plots(readings: Readings) -> list[Plot]:
    """What was read of the host: the server's rates and acceptance, and how busy each GPU was, or the cores of a host without any."""
    served = Curve("acceptance served", "served", _length, _points(readings.acceptance), "primary")
    busy = [
        Curve(f"GPU {index}", f"{index}", format_percent, _points(series), _COLORS[index % len(_COLORS)])
        for index, series in sorted(readings.gpus.items())
    ]
    cores = [Curve("cores", "mean", format_percent, _mean(readings.cpus), "primary")]
    use = (
        Plot("GPU use", busy, format_percent, 0.0)
        if busy
        else Plot("CPU use, mean of the cores", cores, format_percent, 0.0)
    )
    rates = [
        Plot(name, [Curve(name, name, _tokens, _points(series), "primary")], format_count, 0.0)
        for name, series in (("prefill", readings.prefill), ("decode", readings.decode))
        if any(value for _, value in series.readings())
    ]
    return _known(*rates, Plot("acceptance length", [served], _length, low=1.0), use)


def _joined(own: list[Plot], host: list[Plot]) -> list[Plot]:
    """Both, with the curves of plots of the same title on one scale."""
    more = {plot.title: plot for plot in host}
    found = [
        plot._replace(curves=[*plot.curves, *more.pop(plot.title).curves]) if plot.title in more else plot
        for plot in own
    ]
    return [*found, *more.values()]


def _known(*plots: Plot) -> list[Plot]:
    """Without curves and plots of which no value is known."""
    known = [plot._replace(curves=[curve for curve in plot.curves if _has_values(curve)]) for plot in plots]
    return [plot for plot in known if plot.curves]


def _has_values(curve: Curve) -> bool:
    return any(point.value is not None for point in curve.points)


def _points(series: TimeSeries) -> list[Point]:
    return [Point(at, None, value) for at, value in series.readings()]


def _mean(cores: dict[int, TimeSeries]) -> list[Point]:
    """The mean of all cores at each moment at which the first one was read."""
    loads = [dict(series.readings()) for series in cores.values()]
    return [Point(at, None, _mean_of([load.get(at) for load in loads])) for at in (loads[0] if loads else ())]


def _mean_of(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _accuracy(position: int, step: StepLogged) -> float | None:
    return step.accuracy[position] if position < len(step.accuracy) else None


def _ordinal(at: int) -> str:
    return _ORDINALS[at] if at < len(_ORDINALS) else f"{at + 1}th"


def _loss(value: float) -> str:
    return f"{value:.3f}"


def _small(value: float) -> str:
    return f"{value:.1e}".replace("e-0", "e-") if value else "0"


def _length(value: float) -> str:
    return f"{value:.2f}"
