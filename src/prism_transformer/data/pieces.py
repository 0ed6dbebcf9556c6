"""Long texts in pieces that tokenizers take, cut where a cut changes no token."""

from collections.abc import Iterable, Iterator

PIECE_CHARACTERS = 2**16  # long enough that what is cut in the rare hard case does not count


def pieces(blocks: Iterable[str], size: int = PIECE_CHARACTERS) -> Iterator[str]:
    """The text of the blocks in pieces of at most `size` characters, which depend on the text, not on the blocks."""
    text, start = "", 0
    for block in blocks:
        text, start = text[start:] + block, 0
        while len(text) - start > size:
            cut = find_cut(text, start, start + size)
            yield text[start:cut]
            start = cut
    if len(text) > start:
        yield text[start:]


def find_cut(text: str, start: int, limit: int) -> int:
    """The last place in start < i <= limit where a piece may end: before a space that follows a letter or digit.

    No word crosses it in the pre-tokenizations of GPT-2, cl100k or Llama 3, so tokens of the pieces are the tokens of
    the whole. Text without such a place is cut before other white space, or else at the limit.
    """
    cut = text.rfind(" ", start + 1, limit + 1)
    for _ in range(1000):
        if cut < 0 or text[cut - 1].isalnum():
            break
        cut = text.rfind(" ", start + 1, cut)
    if cut > 0 and text[cut - 1].isalnum():
        return cut
    for cut in range(min(limit, len(text) - 1), max(start, limit - 1000), -1):
        if text[cut].isspace() and not text[cut - 1].isspace():
            return cut
    return limit


def take_parts(texts: Iterable[str], ends: Iterable[int]) -> Iterator[tuple[int, str]]:
    """(part, text) for consecutive parts of a text: part k ends near byte ends[k] of its UTF-8, the last one with it.

    A part ends at the last place at or before its byte where `find_cut` would cut the piece that crosses it.
    """
    remaining, offset, part = [*ends], 0, 0
    for text in texts:
        size = len(text.encode())
        while part < len(remaining) and offset + size > remaining[part]:
            head = text.encode()[: max(0, remaining[part] - offset)].decode(errors="ignore")
            cut = find_cut(text, 0, len(head)) if head else 0
            if cut:
                yield part, text[:cut]
            text, offset, part = text[cut:], offset + len(text[:cut].encode()), part + 1
            size = len(text.encode())
        if text:
            yield part, text
        offset += size
