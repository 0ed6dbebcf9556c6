"""A teaching figure: one d x d matrix cut into few wide or many narrow heads, and what that does to what they see."""

from collections.abc import Iterable, Sequence

from ..wording import count

SIDE, GAP, TOP, MAPS, WIDTH = 132, 32, 24, 30, 468
LINE = 17
TEXT = 13.5
"""Still 10 pixels high on a phone."""


def study_matrix(schedules: Iterable[Sequence[int]], width: int | None) -> tuple[str, str]:
    """The figure and its caption: of a study's own width and up to three of the head counts in its schedules.

    An example where the width is not known, or where every layer has as many heads.
    """
    counts = sorted({heads for schedule in schedules for heads in schedule})
    told = "the same matrix, so the same parameters and products, cut into fewer wide or more narrow heads."
    if width is None or len(counts) < 2:
        return cut_matrix(), f"What a head count does, in an example of d_model 768: {told}"
    if len(counts) > 3:
        counts = [counts[0], counts[len(counts) // 2], counts[-1]]
    return cut_matrix(width, counts), f"What a head count does at this study's d_model of {width}: {told}"


def cut_matrix(width: int = 768, counts: Sequence[int] = (3, 6, 12)) -> str:
    """Side by side: the matrix W_Q of `width` rows and columns cut into each of `counts` heads, and the attention maps
    that come of it. SVG in the page's colours."""
    left = (WIDTH - len(counts) * SIDE - (len(counts) - 1) * GAP) / 2
    panels = [_panel(left + k * (SIDE + GAP), heads, width) for k, heads in enumerate(counts)]
    told = ", ".join(f"{count(heads, 'head')} of {width // heads}" for heads in counts)
    label = (
        f"the same matrix of {width} x {width} cut into {told}; fewer heads see more dimensions each, and fewer maps"
    )
    height = TOP + SIDE + 14 + MAPS + 4 * LINE
    return f'<svg role="img" aria-label="{label}" viewBox="0 0 {WIDTH} {height}">{"".join(panels)}</svg>'


def _panel(x: float, heads: int, width: int) -> str:
    head_dim, step = width // heads, SIDE / heads
    strips = [
        f'<rect x="{x + k * step:.2f}" y="{TOP}" width="{max(step - 1.5, step / 2):.2f}" height="{SIDE}" '
        f'fill="var(--series-1)" fill-opacity="{1 if k == 0 else 0.3}"/>'
        for k in range(heads)
    ]
    size = min(MAPS, max(step - 2, step / 2))
    maps = [
        f'<path d="M{x + k * step:.2f} {TOP + SIDE + 12}v{size:.2f}h{size:.2f}z" '
        f'fill="var(--series-2)" fill-opacity="{1 if k == 0 else 0.4}"/>'
        for k in range(heads)
    ]
    words = ("each head matches", f"on {head_dim} numbers;", f"{count(heads, 'pattern')} of who", "looks at whom")
    y = TOP + SIDE + 14 + MAPS
    lines = [
        f'<text x="{x}" y="{y + LINE * (k + 1) - 4}" font-size="{TEXT}" fill="var(--faint)">{word}</text>'
        for k, word in enumerate(words)
    ]
    title = f"{count(heads, 'head')} of {head_dim}"
    heading = f'<text x="{x}" y="15" font-size="14.5" font-weight="600" fill="var(--ink)">{title}</text>'
    return heading + "".join(strips + maps + lines)
