import re
from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from prism_transformer.design.drawing import staircase_svg, staircase_text
from prism_transformer.model.head_schedule import HeadSchedule

SMALL = HeadSchedule.parse("3x2,6x2,8x2,12x6", d_model=768)
SVG = "{http://www.w3.org/2000/svg}"


def test_text_has_a_row_a_phase_and_a_cell_a_head() -> None:
    header, *rows = staircase_text(SMALL)

    assert header.split() == ["layers", "heads", "×", "dim"]
    assert [row.split()[:4] for row in rows] == [
        ["0–1", "3", "×", "256"],
        ["2–3", "6", "×", "128"],
        ["4–5", "8", "×", "96"],
        ["6–11", "12", "×", "64"],
    ]
    bars = [row.split()[4] for row in rows]
    assert [bar.count("▌") for bar in bars] == [3, 6, 8, 12]
    assert len({len(bar) for bar in bars}) == 1  # the width of the model is the same in every layer
    cells = [max(len(cell) for cell in bar.split("▌")) for bar in bars]
    assert cells == sorted(set(cells), reverse=True)  # wider heads are visibly wider


@given(st.lists(st.sampled_from([1, 2, 3, 4, 5, 8, 12, 25, 40, 48, 64, 96, 1200]), min_size=1, max_size=30))
def test_text_fits_80_columns_and_counts_heads(heads: list[int]) -> None:
    rows = staircase_text(HeadSchedule(heads, d_model=4800 * 4))

    assert max(map(len, rows)) <= 80
    for row in rows[1:]:
        count, bar = int(row.split()[1]), row.split()[4]
        assert count > 40 or bar.count("▌") == count
        assert 40 <= len(bar) <= 56


def test_svg_is_well_formed_with_a_column_a_head() -> None:
    root = ElementTree.fromstring(staircase_svg(SMALL))

    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert {"layers 0–1", "3 × 256", "layers 6–11", "12 × 64"} <= set(texts)
    columns = [path.get("d", "").count("z") for path in root.iter(f"{SVG}path") if path.get("fill")]
    assert columns == [3, 6, 8, 12]
    widths = [
        float(re.search(r"h([\d.]+)v", path.get("d", ""))[1]) for path in root.iter(f"{SVG}path") if path.get("fill")
    ]
    assert widths == sorted(widths, reverse=True)


def test_svg_stays_on_the_page_for_deep_models() -> None:
    root = ElementTree.fromstring(staircase_svg(HeadSchedule.parse("1x500,64x500", d_model=4096)))

    assert int(root.get("height", "0")) < 600
    (title,) = root.iter(f"{SVG}title")
    assert title.text == "Head schedule 1x500,64x500, d_model 4096"
