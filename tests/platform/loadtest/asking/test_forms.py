"""Bodies with files, as a service that takes forms reads them."""

from __future__ import annotations

import json
from email import message_from_bytes
from pathlib import Path
from typing import Any

import pytest

from hotplate.platform.errors import BadSetting
from hotplate.platform.loadtest.asking import forms
from hotplate.platform.loadtest.asking.forms import JSON, with_files
from hotplate.platform.loadtest.asking.payloads import given
from hotplate.platform.schema.methods import ServiceMethod

FILE = {"type": "file", "format": "image"}
PIXELS = b"\x89PNG\r\n--not the boundary\r\n\r\n\x00"


def method(root: bool = False, **properties: Any) -> ServiceMethod:
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    if root:
        schema = FILE | {"root_input": True}
    return ServiceMethod("classify", "/classify", "", False, False, schema)


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    path = tmp_path / 'my "cat".png'
    path.write_bytes(PIXELS)
    return path


def parts_of(body: bytes, content_type: str) -> list[tuple[str, str, str, bytes]]:
    """Name, file's name, type and content of each part."""
    message = message_from_bytes(f"Content-Type: {content_type}\r\n\r\n".encode() + body)
    found = []
    for part in message.get_payload():
        assert not isinstance(part, str)
        name, file = (
            part.get_param(key, "", "content-disposition") for key in ("name", "filename")
        )
        content = part.get_payload(decode=True)
        assert isinstance(content, bytes)
        found.append((str(name), str(file), part.get("Content-Type", ""), content))
    return found


def test_a_file_is_sent_in_a_form_beside_the_other_fields_as_json(picture: Path) -> None:
    asked = given(json.dumps({"image": f"@{picture}", "most": 3, "note": "@home", "said": "ä"}))
    (body,), content_type = with_files(asked, method(image=FILE, most={}, note={}, said={}))
    assert parts_of(body, content_type) == [
        ("image", "my %22cat%22.png", "image/png", PIXELS),
        ("most", "", "", b"3"),
        ("note", "", "", b'"@home"'),
        ("said", "", "", b'"\\u00e4"'),
    ]


def test_a_field_may_have_several_files_one_of_them_a_url_or_none(picture: Path) -> None:
    files = {"type": "array", "items": FILE}
    maybe = {"anyOf": [FILE, {"type": "null"}]}
    value = {"images": [f"@{picture}", "https://host/a.png"], "mask": None}
    (body,), content_type = with_files(given(json.dumps(value)), method(images=files, mask=maybe))
    assert [part[0::3] for part in parts_of(body, content_type)] == [
        ("images", PIXELS),
        ("images", b"https://host/a.png"),
    ]


def test_all_bodies_are_forms_where_one_has_a_file(picture: Path, tmp_path: Path) -> None:
    lines = tmp_path / "lines.jsonl"
    lines.write_text(json.dumps({"image": f"@{picture}"}) + '\n{"image": "http://host/a.png"}\n')
    bodies, content_type = with_files(given(str(lines)), method(image=FILE))
    assert [parts_of(body, content_type)[0][3] for body in bodies] == [
        PIXELS,
        b"http://host/a.png",
    ]


def test_where_the_body_is_a_file_it_is_sent_as_it_is(picture: Path, tmp_path: Path) -> None:
    assert with_files(given(f"@{picture}"), method(root=True)) == ([PIXELS], "image/png")
    (tmp_path / "any").write_bytes(b"1")
    both = [json.dumps(f"@{path}").encode() for path in (picture, tmp_path / "any")]
    assert with_files(both, method(root=True)) == ([PIXELS, b"1"], "application/octet-stream")


@pytest.mark.parametrize(
    "served",
    [
        pytest.param(None, id="a route that is not listed"),
        pytest.param(method(image={"type": "string"}), id="a text"),
        pytest.param(method(), id="no field"),
    ],
)
def test_what_is_no_file_to_the_service_is_sent_as_it_was_written(
    served: ServiceMethod | None,
) -> None:
    asked = [b'{"image":"@me"}']
    assert with_files(asked, served) == (asked, JSON)
    assert with_files([b'{"image":"http://host"}'], method(image=FILE))[1] == JSON


def test_a_file_that_cannot_be_sent_is_named(
    picture: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(
        BadSetting, match=r"^--payload, image: /no/cat\.png cannot be read: No such"
    ):
        with_files([b'{"image": "@/no/cat.png"}'], method(image=FILE))
    with pytest.raises(BadSetting, match=r"^--payload, the body: .* cannot be read: Is a dir"):
        with_files([json.dumps(f"@{tmp_path}").encode()], method(root=True))
    with pytest.raises(BadSetting, match="is no JSON object"):
        with_files([json.dumps({"image": f"@{picture}"}).encode(), b"[1]"], method(image=FILE))
    monkeypatch.setattr(forms, "MOST_BYTES", len(PIXELS) + 10)
    with pytest.raises(BadSetting, match="give fewer or smaller ones"):
        with_files([json.dumps(f"@{picture}").encode()] * 2, method(root=True))
