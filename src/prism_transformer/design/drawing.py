"""The staircase of a schedule, for a terminal and as SVG: the width of every layer cut into its heads."""

from itertools import pairwise

from ..model.head_schedule import HeadSchedule

BAR_COLUMNS = range(40, 57)
"""Widths a bar may have: with the labels the widest still fits a terminal of 80 columns."""

_SVG_WIDTH, _SVG_LEFT, _SVG_RIGHT, _SVG_TOP = 640, 96, 120, 40
_WIDE, _NARROW = (8, 48, 107), (158, 202, 225)  # one hue, dark for wide heads, light for narrow ones


def staircase_text(schedule: HeadSchedule) -> list[str]:
    """One line a phase: its layers, heads x head dim, and the model's width cut into heads. At most 80 columns."""
    rows = phase_rows(schedule)
    labels = [f"{first}–{last}" if last > first else f"{first}" for first, last, _ in rows]
    shapes = [f"{heads} × {schedule.d_model // heads}" for _, _, heads in rows]
    label_width = max(len("layers"), *map(len, labels))
    shape_width = max(len("heads × dim"), *map(len, shapes))
    columns = _bar_columns({heads for _, _, heads in rows})
    lines = [f"{'layers':>{label_width}}  {'heads × dim':>{shape_width}}"]
    for label, shape, (_, _, heads) in zip(labels, shapes, rows, strict=True):
        lines.append(f"{label:>{label_width}}  {shape:>{shape_width}}  {_bar(heads, columns)}")
    return lines


def _bar_columns(counts: set[int]) -> int:
    """The bar width that most of the head counts split evenly, the widest of those."""
    return max(BAR_COLUMNS, key=lambda columns: (sum(columns % heads == 0 for heads in counts), columns))


def _bar(heads: int, columns: int) -> str:
    """`heads` cells, each ending in half a column of gap; a shaded bar where there are more heads than columns."""
    if heads > columns:
        return "░" * columns
    edges = [head * columns // heads for head in range(heads + 1)]
    return "".join("█" * (right - left - 1) + "▌" for left, right in pairwise(edges))


def staircase_svg(schedule: HeadSchedule) -> str:
    """A standalone SVG: layers from top to bottom, each layer's width cut into its heads, wide heads dark."""
    rows = phase_rows(schedule)
    row = min(20.0, 480 / schedule.n_layers)
    pitch = [max(18.0, row * (last - first + 1)) for first, last, _ in rows]
    height = round(_SVG_TOP + sum(pitch) + 12)
    title = f"Head schedule {_short(str(schedule))}, d_model {schedule.d_model}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_SVG_WIDTH} {height}" width="{_SVG_WIDTH}"'
        f' height="{height}" font-family="sans-serif" font-size="12" role="img">',
        f"<title>{title}</title>",
        f'<rect width="{_SVG_WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="{_SVG_LEFT}" y="24" font-size="14" fill="#222222">{title}</text>',
        f'<text x="{_SVG_WIDTH - _SVG_RIGHT + 8}" y="24" fill="#444444">heads × head dim</text>',
    ]
    top = float(_SVG_TOP)
    for (first, last, heads), tall in zip(rows, pitch, strict=True):
        label = f"layers {first}–{last}" if last > first else f"layer {first}"
        parts += _svg_phase(schedule, heads, last - first + 1, top, tall, label)
        top += tall
    return "\n".join([*parts, "</svg>", ""])


def _svg_phase(schedule: HeadSchedule, heads: int, layers: int, top: float, tall: float, label: str) -> list[str]:
    bar = _SVG_WIDTH - _SVG_LEFT - _SVG_RIGHT
    middle, head = top + tall / 2 + 4, bar / heads
    gap = min(1.5, head / 4)
    color = _color(schedule, heads)
    columns = "".join(
        f"M{_SVG_LEFT + k * head:.2f} {top:.2f}h{head - gap:.2f}v{tall - 1.5:.2f}h-{head - gap:.2f}z"
        for k in range(heads)
    )
    parts = [
        f'<text x="{_SVG_LEFT - 8}" y="{middle:.1f}" text-anchor="end" fill="#444444">{label}</text>',
        f'<path d="{columns}" fill="{color}"/>',
        f'<text x="{_SVG_WIDTH - _SVG_RIGHT + 8}" y="{middle:.1f}" fill="#222222">'
        f"{heads} × {schedule.d_model // heads}</text>",
    ]
    if tall / layers >= 4:
        lines = "".join(f"M{_SVG_LEFT} {top + tall * layer / layers - 0.75:.2f}h{bar}" for layer in range(1, layers))
        parts.append(f'<path d="{lines}" stroke="#ffffff" stroke-width="1.5"/>' if lines else "")
    return [part for part in parts if part]


def phase_rows(schedule: HeadSchedule) -> list[tuple[int, int, int]]:
    """(first layer, last layer, heads) of each phase."""
    rows, first = [], 0
    for heads, layers in schedule.phases:
        rows.append((first, first + layers - 1, heads))
        first += layers
    return rows


def _color(schedule: HeadSchedule, heads: int) -> str:
    """Light for the narrowest head of the schedule, dark for the widest, even steps between; uniform in the middle."""
    dims = sorted(set(schedule.head_dims))
    share = dims.index(schedule.d_model // heads) / (len(dims) - 1) if len(dims) > 1 else 0.5
    mixed = (round(narrow + share * (wide - narrow)) for narrow, wide in zip(_NARROW, _WIDE, strict=True))
    return "#" + "".join(f"{part:02x}" for part in mixed)


def _short(text: str) -> str:
    return text if len(text) <= 48 else f"{text[:47]}…"
