"""Checks, reads and writes the values of a CloudEvent (JSON format 1.0.2)."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from encodings.aliases import aliases as ALIASES
from enum import Enum
from functools import lru_cache
from typing import Any, Final, NamedTuple, NoReturn

REQUIRED: Final = ("specversion", "id", "source", "type")
#: Optional attributes that must not be empty.
NOT_EMPTY: Final = ("subject", "datacontenttype", "dataschema")
CORE: Final = frozenset((*REQUIRED, *NOT_EMPTY, "time"))
STRUCTURED_CONTENT_TYPE: Final = "application/cloudevents+json"

_SMALLEST_INTEGER, _LARGEST_INTEGER = -(2**31), 2**31 - 1
_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(?:\.\d+)?(?:[Zz]|[+-]\d\d:\d\d)", re.ASCII).fullmatch
_CHARSET = re.compile(r""";\s*+charset\s*+=\s*+["']?([^\s;"']++)""", re.IGNORECASE).search
#: The character sets of text: those of browsers (WHATWG, Encoding) that Python has, UTF-32, ASCII. Each is read and written in
#: one pass. A stranger must not choose Python's other codecs: `punycode` takes a minute for a megabyte.
_CODECS: Final = frozenset((
    "ascii", "utf_8", "utf_16", "utf_16_be", "utf_16_le", "utf_32", "utf_32_be", "utf_32_le", "latin_1", "iso8859_2",
    "iso8859_3", "iso8859_4", "iso8859_5", "iso8859_6", "iso8859_7", "iso8859_8", "iso8859_9", "iso8859_10",
    "iso8859_11", "iso8859_13", "iso8859_14", "iso8859_15", "iso8859_16", "cp437", "cp850", "cp866", "cp874",
    "cp1250", "cp1251", "cp1252", "cp1253", "cp1254", "cp1255", "cp1256", "cp1257", "cp1258", "koi8_r", "koi8_u",
    "mac_roman", "mac_cyrillic", "gb2312", "gbk", "gb18030", "big5", "big5hkscs", "euc_jp", "shift_jis", "cp932",
    "iso2022_jp", "euc_kr", "cp949", "tis_620",
))  # fmt: skip
#: Content types are cached, so their length is bounded; those of real messages have some twenty bytes.
LONGEST_CONTENT_TYPE: Final = 4096
#: Reasons go into logs, answers and headers of dead letters: a stranger's text is shortened there. Characters.
LONGEST_REASON: Final = 500
#: The most that one JSON text may cost, in units of about 45 ns: no other thread runs while Python parses it. 8 MiB of `[],` took
#: 0.4 s, and so did different names; the smallest events 0.07 s, numbers 0.2 s. The content of strings is free.
MOST_WORK: Final = 4_400_000
#: Units of each value, name, list and object outside of strings; and of a name that has not occurred before.
_WORK = ((b",", 1), (b":", 1), (b"[", 4), (b"{", 2))
_NEW_NAME = 8
#: The same if all names were new, also in strings: the upper bound.
_MOST_WORK = tuple((mark, units + _NEW_NAME if mark == b":" else units) for mark, units in _WORK)
_LOOKED_THROUGH = 256 * 1024
#: Control characters, surrogates and Unicode's noncharacters.
_FORBIDDEN_CHARACTER = re.compile(
    "[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef"
    + "".join(chr(plane << 16 | last) for plane in range(17) for last in (0xFFFE, 0xFFFF))
    + "]"
)
_FORBIDDEN = _FORBIDDEN_CHARACTER.search
_NAME = re.compile(r"[a-z0-9]+").fullmatch


class Refused(ValueError):
    """The record is no CloudEvent; users see the reason, cut at `LONGEST_REASON`."""

    def __init__(self, why: str) -> None:
        super().__init__(why if len(why) <= LONGEST_REASON else f"{why[: LONGEST_REASON - 3]}...")


class UnreadableHeadersError(Refused):
    """The client cannot read the record's headers, so its content is unknown."""


class UnreadFormatError(Refused):
    """It may be one event or several, in an unknown format."""

    def __init__(self, header: str, given: str, known: str) -> None:
        super().__init__(f"{header} is {given[:80]!r}; of the event formats only {known} read")


class DataKind(Enum):
    """How data is read, by its content type."""

    JSON = "parsed"
    TEXT = "given as str"
    OPAQUE = "given as bytes"
    EVENT = "a whole event in JSON"
    FOREIGN_EVENT = "a whole event, or several, in a format that is not read here"


class ContentType(NamedTuple):
    """A content type as written, with its kind and character set."""

    text: str
    kind: DataKind
    charset: str


def content_type(text: str) -> ContentType:
    """Classify a content type; unknown character sets are opaque. Raises Refused."""
    if len(text) > LONGEST_CONTENT_TYPE:
        raise Refused(f"a content type of {len(text)} characters; {LONGEST_CONTENT_TYPE} are the most: {text[:80]!r}")
    return _classified(text)


@lru_cache(maxsize=1024)
def _classified(text: str) -> ContentType:
    media = text.partition(";")[0].strip().lower()
    subtype = media.partition("/")[2]
    if media.startswith("application/cloudevents"):
        kind = DataKind.EVENT if media == STRUCTURED_CONTENT_TYPE else DataKind.FOREIGN_EVENT
    elif subtype == "json" or subtype.endswith("+json"):
        kind = DataKind.JSON
    elif media.startswith("text/") and subtype != "xml" and not subtype.endswith("+xml"):
        kind = DataKind.TEXT  # XML names its own character set, so its parser needs the bytes
    else:
        kind = DataKind.OPAQUE
    named = _CHARSET(text)
    charset = named[1].lower() if named and kind is DataKind.TEXT else "utf-8"
    return ContentType(text, kind if _is_charset(charset) else DataKind.OPAQUE, charset)


def _is_charset(name: str) -> bool:
    plain = name.lower().replace("-", "_")
    return plain in _CODECS or ALIASES.get(plain) in _CODECS


def content_type_of_header(raw: bytes) -> ContentType:
    """Classify a `content-type` header. Raises Refused."""
    if len(raw) > LONGEST_CONTENT_TYPE:
        raise Refused(f"header content-type has {len(raw)} bytes; {LONGEST_CONTENT_TYPE} are the most: {raw[:80]!r}")
    return _of_header(raw)


@lru_cache(maxsize=1024)
def _of_header(raw: bytes) -> ContentType:
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        raise Refused(f"header content-type is not UTF-8: {raw[:80]!r}") from None
    check_text("content-type", text)
    return content_type(text)


def is_name(name: str) -> bool:
    """Tell whether `name` can be an attribute's name; `data` is reserved."""
    return name != "data" and _NAME(name) is not None


def check_text(name: str, value: str) -> None:
    """Raise Refused if `value` holds characters that no attribute may hold."""
    # The first test is fast, and nearly always enough.
    if not value.isprintable() and (problem := forbidden_in(name, value)):
        raise Refused(problem)


def forbidden_in(name: str, value: str) -> str:
    """Return the problem of the characters in `value`; empty: none."""
    bad = _FORBIDDEN(value)
    return f"{name} holds U+{ord(bad[0]):04X}, which is not allowed in an attribute" if bad else ""


def replace_forbidden(text: str) -> str:
    """Return `text` with U+FFFD for each character that no attribute may hold."""
    return text if text.isprintable() else _FORBIDDEN_CHARACTER.sub("\N{REPLACEMENT CHARACTER}", text)


def check_attributes(attributes: dict[str, Any]) -> None:
    """Check the defined attributes, and make `time` a datetime. Raises Refused."""
    get = attributes.get
    if get("specversion") != "1.0" or not (get("id") and get("source") and get("type")):
        raise Refused(_missing(attributes))
    for name in NOT_EMPTY:
        if name in attributes and not attributes[name]:
            raise Refused(f"attribute {name} is empty")
    if "time" in attributes:
        attributes["time"] = read_time(attributes["time"])


def _missing(attributes: Mapping[str, Any]) -> str:
    for name in REQUIRED:
        if not attributes.get(name):
            return f"required attribute {name} is {'empty' if name in attributes else 'missing'}"
    return f"specversion is {attributes['specversion'][:80]!r}; only '1.0' is known"


def read_time(text: str) -> datetime:
    """Read an RFC 3339 timestamp, without digits below microseconds. Raises Refused."""
    if _TIMESTAMP(text):
        try:
            return datetime.fromisoformat(text.upper())
        except ValueError:
            pass  # a leap second, or no date of the calendar
        if text[17:19] == "60":
            try:
                return datetime.fromisoformat(f"{text[:17]}59{text[19:]}".upper()) + timedelta(seconds=1)
            except (ValueError, OverflowError):
                pass  # no date of the calendar
    raise Refused(f"time is {text[:80]!r}, which is no RFC 3339 timestamp")


def write_time(moment: datetime) -> str:
    """Write `moment` as RFC 3339. Raises ValueError without a time zone."""
    offset = moment.utcoffset()
    if offset is None:
        raise ValueError(f"{moment!r} has no time zone")
    if offset.total_seconds() % 60:  # RFC 3339 has no seconds in offsets
        moment = moment.astimezone(UTC)
    return moment.isoformat().replace("+00:00", "Z")


def _no_number(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


_decode_json = json.JSONDecoder(parse_constant=_no_number).decode


def check_work(raw: bytes) -> None:
    """Raise Refused if parsing the JSON would block other threads too long."""
    if _NEW_NAME * len(raw) <= MOST_WORK or (
        sum(units * piece.count(mark) for piece in _pieces(raw) for mark, units in _MOST_WORK) <= MOST_WORK
    ):
        return
    work, names = 0, set[int]()
    for parts, inside in _split(_pieces(raw)):
        outside, strings = parts[inside::2], parts[1 - inside :: 2]
        text = b"".join(outside)
        work += sum(units * text.count(mark) for mark, units in _WORK)
        follows = zip(strings, outside[1 - inside :], strict=False)
        names.update(hash(string) for string, after in follows if after.lstrip()[:1] == b":")
        if work + _NEW_NAME * len(names) > MOST_WORK:
            raise Refused(
                f"JSON of {len(raw)} bytes with more values and names than can be taken apart at once; send less in one"
            )


def _pieces(raw: bytes) -> Iterator[bytes]:
    """Yield JSON in pieces; none ends after the backslash of an escape."""
    at = 0
    while at < len(raw):
        end = at + _LOOKED_THROUGH
        piece = raw[at:end]
        if (len(piece) - len(piece.rstrip(b"\\"))) % 2:
            end += 1
            piece = raw[at:end]
        at = end
        yield piece


def _split(pieces: Iterable[bytes]) -> Iterator[tuple[list[bytes], bool]]:
    """Yield each piece's parts between quotes; whether it begins inside one."""
    inside = False
    for piece in pieces:
        parts = piece.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        yield parts, inside
        inside ^= len(parts) % 2 == 0


def read_json(raw: bytes) -> Any:
    """Parse UTF-8 JSON strictly: no NaN, not too many values. Raises Refused."""
    check_work(raw)
    return read_checked_json(raw)


def read_checked_json(raw: bytes) -> Any:
    """Parse JSON that passed `check_work`. Raises Refused."""
    try:
        return _decode_json(raw.decode())
    except UnicodeDecodeError as error:
        raise Refused(f"JSON that is not UTF-8: byte 0x{raw[error.start]:02x} at {error.start}") from None
    except ValueError as error:
        raise Refused(f"bad JSON: {error}") from None
    except RecursionError:
        raise Refused("bad JSON: nested too deeply") from None


def write_json(value: Any) -> bytes:
    """Write compact JSON, datetimes as RFC 3339. Raises ValueError."""
    try:
        return json.dumps(value, allow_nan=False, separators=(",", ":"), default=_write_other).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"cannot be written as JSON: {error}") from error


def _write_other(value: Any) -> str:
    if isinstance(value, datetime):
        return write_time(value)
    raise TypeError(f"a {type(value).__name__} has no JSON form")


def read_data(raw: bytes | None, kind: ContentType | None) -> Any:
    """Return data by its content type: parsed JSON, str, bytes. Raises Refused."""
    if raw is None or kind is None:
        return raw
    if kind.kind is DataKind.JSON:
        # Missing data should be a null value, but many producers cannot write one; empty bytes are no JSON anyway.
        return read_json(raw) if raw else None
    if kind.kind is not DataKind.TEXT:
        return raw
    try:
        return raw.decode(kind.charset)
    except ValueError as error:
        raise Refused(f"data is {kind.text!r} but not in {kind.charset}: {error}") from None


def write_data(data: Any, declared: str | None) -> tuple[bytes | None, str | None]:
    """Return the bytes of `data`, and the content type to declare.

    Bytes stay unchanged. Anything else is JSON if the content type says so, or if there is none: then JSON is declared. Raises
    ValueError if the content type and the data do not fit.
    """
    if data is None or isinstance(data, (bytes, bytearray)):
        return (None if data is None else bytes(data)), declared
    kind = content_type(declared or "application/json")
    if kind.kind is DataKind.JSON:
        return write_json(data), kind.text
    if isinstance(data, str):
        if not _is_charset(kind.charset):
            raise ValueError(f"data cannot be written as {declared!r}: unknown encoding: {kind.charset}; give bytes")
        return data.encode(kind.charset), declared
    raise ValueError(f"data is a {type(data).__name__}, which cannot be written as {declared!r}: give str or bytes")


def write_text(text: str, declared: str) -> bytes:
    """Write `text` in the content type's character set, UTF-8 by default.

    Raises ValueError for an unknown character set, or one that cannot write the text.
    """
    named = _CHARSET(declared)
    charset = named[1] if named else "utf-8"
    if _is_charset(charset):
        raw = text.encode(charset)
        if raw.decode(charset) == text:
            return raw
    raise ValueError(f"text cannot be written as {declared[:80]!r}")


def write_attribute(name: str, value: Any) -> str | int | bool:
    """Return an attribute's JSON value. Raises ValueError for other types."""
    if isinstance(value, datetime):
        return write_time(value)
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode("ascii")
    check_attribute(name, value)
    return value  # type: ignore[no-any-return]


def attribute_texts(attributes: Mapping[str, Any]) -> dict[str, str]:
    """Return the texts for headers, without `datacontenttype`. Raises as `write_attribute`."""
    return {
        name: written if isinstance(written := write_attribute(name, value), str) else text_of(written)
        for name, value in attributes.items()
        if value is not None and name != "datacontenttype"
    }


def text_of(member: Any) -> str:
    """Return a JSON format's attribute as the text in headers."""
    return str(member).lower() if isinstance(member, bool) else str(member)


def check_attribute(name: str, value: Any) -> None:
    """Raise Refused unless CloudEvents allows the str, bool or int `value`."""
    if isinstance(value, str):
        check_text(name, value)
    elif name in CORE or not isinstance(value, int):
        wanted = "a string" if name in CORE else "a string, a boolean or an integer"
        raise Refused(f"attribute {name} is {_named(value)}; it must be {wanted}")
    elif not _SMALLEST_INTEGER <= value <= _LARGEST_INTEGER:
        raise Refused(f"attribute {name} is {str(value)[:80]}; integers have 32 bits")


def read_base64(value: Any) -> bytes:
    """Return the bytes of a member `data_base64`. Raises Refused."""
    if not isinstance(value, str):
        raise Refused(f"data_base64 is {_named(value)}; it must be a string")
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError) as error:
        raise Refused(f"data_base64 is not Base64: {error}") from None


def _named(value: Any) -> str:
    kinds: Mapping[type, str] = {dict: "an object", list: "an array", bool: "a boolean", int: "a number"}
    return kinds.get(type(value), f"a {type(value).__name__}")
