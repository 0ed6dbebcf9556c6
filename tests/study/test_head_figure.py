"""The teaching figure says what it draws."""

import re
from xml.etree import ElementTree

from prism_transformer.study.head_figure import cut_matrix


def test_every_cut_fills_the_same_matrix():
    svg = ElementTree.fromstring(cut_matrix(768, (3, 6, 12)))
    strips = [element for element in svg if element.tag == "rect"]
    maps = [element for element in svg if element.tag == "path"]
    assert len(strips) == len(maps) == 3 + 6 + 12
    assert len({element.get("height") for element in strips}) == 1
    text = " ".join(element.text for element in svg if element.tag == "text")
    assert all(f"{h} heads of {768 // h}" in text for h in (3, 6, 12))
    assert re.search(r"256 numbers.*3 patterns", text)
