"""Text for the terminal: heading, progress, and the tables of times and fits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from collectives.fit import Fit
from collectives.library import Library
from collectives.results import Point, Results
from collectives.settings import shown_size

UNSTEADY = 2
"""A measurement is unsteady if its slowest repetition takes more than this number of times its
fastest repetition."""
MANY = 0.25
"""Fraction of unsteady measurements above which the report contains a warning."""

COLUMNS = "{:>10} {:>7} {:>12} {:>25} {:>11} {:>11}"
FITTED = "{:<24} {:>21} {:>12} {:>11} {:>11} {:>7}"


def heading(library: Library, hosts: Sequence[str]) -> str:
    """Return one line that describes the measurement."""
    places = ", ".join(f"{hosts.count(host)} on {host}" for host in dict.fromkeys(hosts))
    kind = str(library.dtype).removeprefix("torch.")
    memory = "GPU memory" if library.device.type == "cuda" else "CPU memory"
    return f"{library.name} ({library.backend}), {kind} in {memory}, {len(hosts)} ranks: {places}"


def progress(points: Sequence[Point], total: int) -> str:
    """Return one line about the operation that has just ended, and the progress of the run."""
    last = points[-1]
    own = [one for one in points if one.operation == last.operation]
    text = f"{len(points)}/{total}  {last.operation}: {_us(own[0].seconds.median)} us"
    if last.busbw_gb_s is None:
        return text
    best = max(one.busbw_gb_s or 0.0 for one in own)
    return f"{text} at {shown_size(own[0].bytes)}, at most {best:.3g} GB/s on the bus"


def report(results: Results) -> str:
    """Return the tables of all operations, and of the fits."""
    return "\n".join([*_operations(results), *_fits(results.fits), *_doubt(results.points)])


def _operations(results: Results) -> Iterator[str]:
    for name in dict.fromkeys(one.operation for one in results.points):
        yield ""
        yield name
        yield COLUMNS.format("size", "calls", "median us", "(min - max)", "alg. GB/s", "bus GB/s")
        for one in (point for point in results.points if point.operation == name):
            seconds = one.seconds
            yield COLUMNS.format(
                shown_size(one.bytes) if one.bytes else "-",
                one.iterations, _us(seconds.median),
                f"({_us(seconds.min)} - {_us(seconds.max)})",
                _rate(one.algbw_gb_s), _rate(one.busbw_gb_s),
            )


def _fits(fits: Sequence[Fit]) -> Iterator[str]:
    if not fits:
        return
    yield ""
    yield "fitted time = alpha + bytes / bandwidth"
    yield FITTED.format("operation", "sizes", "alpha us", "GB/s", "n_half", "error")
    for fit in fits:
        for number, one in enumerate(fit.ranges):
            sizes = f"{shown_size(one.from_bytes)} - {shown_size(one.to_bytes)}"
            half = "-" if one.n_half_bytes is None else f"{one.n_half_bytes:.3g} B"
            yield FITTED.format(
                "" if number else fit.operation, sizes, f"{one.alpha_us:.4g}", _rate(one.gb_s),
                half, f"{one.error:.1%}",
            )


def _doubt(points: Sequence[Point]) -> Iterator[str]:
    """Yield a warning if the nodes or the network were probably busy with other work."""
    unsteady = sum(one.seconds.max > UNSTEADY * one.seconds.min for one in points)
    if unsteady > len(points) * MANY:
        yield ""
        yield (f"warning: the repetitions of {unsteady} of {len(points)} points differ by more than"
               f" a factor of {UNSTEADY}; other programs probably used the nodes or the network")


def _us(seconds: float) -> str:
    """Return a time in microseconds with four significant digits, without an exponent."""
    value = seconds * 1e6
    return f"{value:.0f}" if value >= 1000 else f"{value:.4g}"


def _rate(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
