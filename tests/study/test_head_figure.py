"""The teaching figure says what it draws."""

import re
from xml.etree import ElementTree

from prism_transformer.study.head_figure import cut_matrix, study_matrix


def test_every_cut_fills_the_same_matrix():
    svg = ElementTree.fromstring(cut_matrix(768, (3, 6, 12)))
    strips = [element for element in svg if element.tag == "rect"]
    maps = [element for element in svg if element.tag == "path"]
    assert len(strips) == len(maps) == 3 + 6 + 12
    assert len({element.get("height") for element in strips}) == 1
    text = " ".join(element.text for element in svg if element.tag == "text")
    assert all(f"{h} heads of {768 // h}" in text for h in (3, 6, 12))
    assert re.search(r"256 numbers.*3 patterns", text)


def test_a_study_draws_its_own_heads() -> None:
    svg, caption = study_matrix([(1, 2, 4, 4), (4, 4, 4, 4), (8, 8, 8, 8)], 64)
    titles = [element.text for element in ElementTree.fromstring(svg) if element.get("font-weight") == "600"]
    # of 1, 2, 4 and 8: the fewest, the middle and the most
    assert titles == ["1 head of 64", "4 heads of 16", "8 heads of 8"]
    assert caption.startswith("What a head count does at this study's d_model of 64: ")
    for schedules, width in (([(4, 4), (4, 4)], 64), ([(1, 2)], None)):
        assert study_matrix(schedules, width)[0] == cut_matrix(768, (3, 6, 12))
        assert "in an example of d_model 768" in study_matrix(schedules, width)[1]


def test_many_heads_still_have_a_width() -> None:
    svg = ElementTree.fromstring(cut_matrix(1024, (64, 128)))
    assert min(float(element.get("width", "0")) for element in svg if element.tag == "rect") > 0
