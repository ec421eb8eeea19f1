"""How all pictures look: colours that everybody can tell apart, quiet axes, files of one kind.

The colours are Okabe and Ito's. Drawing is done without pyplot, so that no picture depends
on what was drawn before, and no window system is asked for.
"""

from __future__ import annotations

import os
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

BLUE, ORANGE, GREEN, RED = "#0072B2", "#E69F00", "#009E73", "#D55E00"
PURPLE, SKY, YELLOW, BLACK = "#CC79A7", "#56B4E9", "#F0E442", "#000000"
COLOURS = (BLUE, ORANGE, GREEN, RED, PURPLE, SKY, "#8C6D31", BLACK)
GREY = "#666666"
PALE = "#DDDDDD"
DOTS_PER_INCH = 150
SUFFIXES = (".svg", ".png", ".pdf")


def new_figure(width: float, height: float) -> Figure:
    """An empty picture of so many inches."""
    # Only this program draws in its process, and every picture wants the same settings.
    mpl.rcParams.update(
        {
            "font.size": 10,
            "axes.titlesize": 10.5,
            "axes.titlelocation": "left",
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.axisbelow": True,
            "legend.frameon": False,
            "legend.fontsize": 9,
            # Identifiers in an SVG are random unless they are salted; so would be its bytes.
            "svg.hashsalt": "outrider",
        }
    )
    figure = Figure(figsize=(width, height), dpi=DOTS_PER_INCH, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save(figure: Figure, path: str | os.PathLike[str]) -> None:
    """Write .svg, .png or .pdf by the name; the same picture gives the same bytes."""
    suffix = Path(path).suffix.lower()
    date = {".svg": "Date", ".pdf": "CreationDate"}.get(suffix)
    figure.savefig(path, metadata={date: None} if date else None)


def grid(axes: Axes) -> None:
    """Lines to read values by, behind everything."""
    axes.grid(True, axis="y", color=PALE, linewidth=0.7)


def title(figure: Figure, what: str, origin: str) -> None:
    """What the picture shows, and below it in small print where it comes from."""
    figure.suptitle(f"{what}\n", x=0.01, ha="left", fontsize=12.5, fontweight="bold", linespacing=1.5)
    below = 1 - 0.38 / figure.get_figheight()
    figure.text(
        0.01, below, origin, ha="left", va="top", fontsize=9, color=GREY, transform=figure.transFigure
    )
