from __future__ import annotations

import gzip
import tarfile
import tracemalloc
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hotplate.cache.errors import BadArchive
from hotplate.cache.tarballs.archive_limits import ArchiveLimits
from hotplate.cache.tarballs.tar_reader import ArchiveEnd, MemberBegin, MemberEnd, TarReader
from tests.support.cache.tars import END, files_in, member, padded, pax, record, resigned, tar_of

FILE = member("file", b"content")


def read(tar: bytes, piece_bytes: int = 1 << 20, limits: ArchiveLimits | None = None) -> list[str]:
    """All events of `tar`, as text, neighbouring pieces of data put together."""
    reader, told, data = TarReader(limits), [], b""
    for start in range(0, len(tar), piece_bytes):
        for event in reader.feed(tar[start : start + piece_bytes]):
            match event:
                case MemberBegin(path, folder, size):
                    told.append(f"{'folder' if folder else 'file'} {path} {size}")
                case memoryview():
                    data += event
                case MemberEnd(path):
                    told.append(f"end {path} {data.decode()}")
                    data = b""
                case ArchiveEnd():
                    told.append("end")
    reader.close()
    return told


def test_the_events_are_the_same_wherever_the_pieces_are_cut() -> None:
    tar = tar_of({"a": None, "a/long" + "x" * 150: b"one", "a/empty": b"", "ü": b"z" * 600})
    whole = read(tar)
    assert whole[0] == "folder a 0"
    assert whole[-3:] == ["file ü 600", "end ü " + "z" * 600, "end"]
    for piece_bytes in (1, 2, 3, 7, 511, 512, 513, 1000):
        assert read(tar, piece_bytes) == whole
        assert read(gzip.compress(tar), piece_bytes) == whole


def test_every_split_in_two_gives_the_same_events() -> None:
    tar = tar_of({"dir/" + "n" * 120: b"content", "b": b"x" * 513})
    for packed in (tar, gzip.compress(tar)):
        whole = read(tar)
        for cut in range(0, len(packed), 1 if packed is not tar else 13):
            reader = TarReader()
            events = [*reader.feed(packed[:cut])]
            kinds = [type(event) for event in events if not isinstance(event, memoryview)]
            kinds += [type(e) for e in reader.feed(packed[cut:]) if not isinstance(e, memoryview)]
            reader.close()
            assert len(kinds) == len(whole)


@pytest.mark.parametrize(
    "tar_format",
    [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT],
    ids=["ustar", "gnu", "pax"],
)
def test_all_formats_of_the_standard_library_are_read(tar_format: int) -> None:
    long = "folder/" * 12 + "name" * 20  # more than 100 bytes: a prefix, a record or a pax header
    told = read(tar_of({"folder": None, long: b"content", "b": b""}, tar_format))
    assert told == [
        *("folder folder 0", "end folder "),
        *(f"file {long} 7", f"end {long} content"),
        *("file b 0", "end b ", "end"),
    ]


def test_what_pax_says_goes_before_the_header() -> None:
    said = record(b"path", b"./other") + record(b"mtime", b"1.5") + record(b"size", b"3")
    tar = pax(said) + resigned(member("name"), 124, b"00000000000\0") + padded(b"abc") + END
    (begin, *_) = TarReader().feed(tar)
    assert begin == MemberBegin("other", False, 3, 0o644, 1.5)


def test_a_size_beyond_octal_is_read() -> None:
    header = resigned(member("big"), 124, b"\x80" + (9 << 30).to_bytes(11, "big"))
    assert list(TarReader().feed(header)) == [MemberBegin("big", False, 9 << 30, 0o644, 0.0)]


def test_gnu_dates_are_not_taken_for_a_prefix() -> None:
    header = resigned(member("name"), 345, b"12345670123\0")
    assert read(header + END)[0] == "file name 0"


def test_a_tar_from_before_posix_is_read() -> None:
    folder = resigned(resigned(member("a/"), 156, b"\0"), 257, bytes(8))
    file = resigned(resigned(member("a/b", b"content"), 156, b"\0"), 257, bytes(8))
    assert read(folder + file + END) == [
        *("folder a 0", "end a "),
        *("file a/b 7", "end a/b content", "end"),
    ]


def test_the_root_folder_is_no_member() -> None:
    root = member("./", kind=tarfile.DIRTYPE)
    assert read(root + member(".", kind=tarfile.DIRTYPE) + END) == ["end"]


def test_only_the_permission_bits_of_the_mode_are_kept() -> None:
    (begin, *_) = TarReader().feed(resigned(member("tool"), 100, b"0104755\0"))
    assert isinstance(begin, MemberBegin)
    assert begin.mode == 0o755


def test_a_global_header_with_a_comment_is_passed_over() -> None:
    comment = pax(record(b"comment", b"0123"), tarfile.XGLTYPE)
    assert read(comment + FILE + END)[0] == "file file 7"


HOSTILE = {
    "symbolic link": (member("a", kind=tarfile.SYMTYPE, link="/etc/passwd"), "a symbolic link"),
    "hard link": (member("a", kind=tarfile.LNKTYPE, link="../../x"), "a hard link"),
    "long link": (
        member("././@LongLink", b"/" * 300 + b"\0", tarfile.GNUTYPE_LONGLINK)
        + member("a", kind=tarfile.SYMTYPE, link="/" * 100),
        "a symbolic link",
    ),
    "character device": (member("a", kind=tarfile.CHRTYPE), "a character device"),
    "block device": (member("a", kind=tarfile.BLKTYPE), "a block device"),
    "fifo": (member("a", kind=tarfile.FIFOTYPE), "a FIFO"),
    "contiguous": (member("a", kind=tarfile.CONTTYPE), "a contiguous file"),
    "gnu sparse": (member("a", kind=tarfile.GNUTYPE_SPARSE), "a sparse file"),
    "pax sparse": (pax(record(b"GNU.sparse.major", b"1")) + FILE, "a sparse file"),
    "unknown kind": (member("a", kind=b"Z"), "unknown kind"),
    "multi-volume": (member("a", kind=b"M"), "unknown kind"),
    "absolute": (member("/etc/passwd"), "absolute"),
    "absolute by pax": (pax(record(b"path", b"/etc/passwd")) + FILE, "absolute"),
    "absolute behind dot": (member(".//etc/passwd"), "empty or '.'"),
    "parent": (member("../a"), "'..'"),
    "parent inside": (member("./a/../../b"), "'..'"),
    "parent at the end": (member("a/..", kind=tarfile.DIRTYPE), "'..'"),
    "parent folder": (member("..", kind=tarfile.DIRTYPE), "'..'"),
    "empty name": (member(""), "empty"),
    "empty name by pax": (pax(record(b"path", b"")) + FILE, "empty"),
    "empty component": (member("a//b"), "empty or '.'"),
    "dot component": (member("a/./b"), "empty or '.'"),
    "root as a file": (member("."), "empty or '.'"),
    "file with a slash": (member("a/"), "empty or '.'"),
    "backslash": (member("a\\..\\b"), "backslash"),
    "nul by pax": (pax(record(b"path", b"a\0b")) + FILE, "NUL"),
    "nul by gnu": (member("L", b"a\0/../b\0", tarfile.GNUTYPE_LONGNAME) + FILE, "NUL"),
    "not utf-8": (member("\udcff"), "not UTF-8"),
    "long path": (pax(record(b"path", b"aaa/" * 1024 + b"b")) + FILE, "limit 4096"),
    "long component": (pax(record(b"path", b"a" * 256)) + FILE, "limit 255"),
    "deep": (pax(record(b"path", b"a/" * 64 + b"b")) + FILE, "limit 64"),
    "duplicate": (FILE + member("./file"), "twice"),
    "duplicate folder": (member("a", kind=tarfile.DIRTYPE) * 2, "twice"),
    "file as a folder": (FILE + member("file/below"), "a file and a folder"),
    "folder as a file": (member("file/below") + FILE + END, "a file and a folder"),
    "folder with content": (member("a", b"x", tarfile.DIRTYPE), "folder of 1 bytes"),
    "folder with content by pax": (
        pax(record(b"size", b"512")) + member("a", kind=tarfile.DIRTYPE),
        "folder of 512 bytes",
    ),
    "negative size": (resigned(FILE, 124, b"\xff" * 12), "size of -1"),
    "signed octal size": (resigned(FILE, 124, b"-0000000007\0"), "number"),
    "odd octal size": (resigned(FILE, 124, b"0_000000007\0"), "number"),
    "negative pax size": (pax(record(b"size", b"-1")) + FILE, "no number"),
    "time not a number": (pax(record(b"mtime", b"nan")) + FILE, "no number"),
    "time without end": (resigned(FILE, 136, b"\x80" + b"\xff" * 11), "out of range"),
    "huge pax record": (resigned(pax(b"x"), 124, b"00040000000\0"), "limit 1048576"),
    "huge gnu name": (
        resigned(member("L", b"x", tarfile.GNUTYPE_LONGNAME), 124, b"00040000000\0"),
        "limit 1048576",
    ),
    "pax headers without end": (
        b"".join(pax(record(b"%d" % n, b"x" * 100_000)) for n in range(20)),
        "limit 1048576",
    ),
    "empty pax record": (pax(b"") + FILE, "have 0 bytes"),
    "pax length too long": (pax(b"99 path=a\n") + FILE, "malformed"),
    "pax length zero": (pax(b"0 path=a\n") + FILE, "malformed"),
    "pax without length": (pax(b"path=a\n") + FILE, "malformed"),
    "pax without equals": (pax(b"8 pathx\n") + FILE, "malformed"),
    "pax without newline": (pax(b"9 path=ab") + FILE, "malformed"),
    "two pax headers": (pax(record(b"path", b"a")) * 2 + FILE, "two extended headers"),
    "gnu and pax name": (
        pax(record(b"path", b"a")) + member("L", b"b\0", tarfile.GNUTYPE_LONGNAME) + FILE,
        "two extended headers",
    ),
    "global path": (pax(record(b"path", b"a"), tarfile.XGLTYPE) + FILE, "global header"),
    "unknown magic": (resigned(FILE, 257, b"usTar\0"), "unknown format"),
    "bad checksum": (FILE[:148] + b"000000\0 " + FILE[156:], "checksum"),
    "no tar": (b"PK\3\4" + bytes(600), "checksum"),
    "pax size beyond what there is": (pax(record(b"size", b"9999")) + FILE + END, "middle of"),
    "header size beyond what there is": (resigned(FILE, 124, b"00000017777\0") + END, "middle of"),
    "header size below what there is": (
        resigned(member("a", b"x" * 600), 124, b"00000000007\0"),
        "checksum",
    ),
    "pax size below what there is": (
        pax(record(b"size", b"7")) + member("a", b"x" * 600),
        "checksum",
    ),
    "size of a petabyte": (
        resigned(FILE, 124, b"\x80" + (1 << 50).to_bytes(11, "big")),
        "limit 1099511627776",
    ),
    "gzip in gzip": (gzip.compress(gzip.compress(FILE + END)), "middle of its headers"),
    "second archive": (FILE + END + FILE, "after its end"),
    "header after a zero block": (FILE + bytes(512) + member("b"), "after its end"),
    "endless zeros": (FILE + END + bytes(2 << 20), "after its end"),
    "record at the end": (pax(record(b"path", b"a")) + END, "middle of"),
    "damaged gzip": (gzip.compress(FILE + END)[:-8] + bytes(8), "gzip data are damaged"),
    "data after gzip": (gzip.compress(FILE + END) + b"more", "after its gzip end"),
}


@pytest.mark.parametrize("case", HOSTILE)
@pytest.mark.parametrize("piece_bytes", [1 << 20, 100])
def test_a_hostile_archive_is_refused_with_its_reason(case: str, piece_bytes: int) -> None:
    tar, reason = HOSTILE[case]
    with pytest.raises(BadArchive) as refused:
        read(tar, piece_bytes)
    assert reason in str(refused.value)


def test_a_refusal_names_the_member_and_cuts_a_name_that_would_flood_the_log() -> None:
    with pytest.raises(BadArchive, match=r"member '\.\./secret' is refused: .*'\.\.'"):
        read(member("../secret"))
    with pytest.raises(BadArchive) as refused:
        read(pax(record(b"path", b"/" + b"a" * 100_000)) + FILE)
    assert len(str(refused.value)) < 400


def test_limits_hold_before_a_byte_of_the_member_is_given_on() -> None:
    file = member("a", b"x" * 100)
    for limits, reason in [
        (ArchiveLimits(file_bytes=99), "it has 100 bytes .limit 99."),
        (ArchiveLimits(total_bytes=199), "200 bytes with it .limit 199."),
        (ArchiveLimits(members=1), "more than 1 members"),
        (ArchiveLimits(paths_bytes=1), "more than 1 bytes"),
    ]:
        reader = TarReader(limits)
        begun = []
        with pytest.raises(BadArchive, match=reason):
            for event in reader.feed(file + member("b", b"x" * 100) + END):
                if isinstance(event, MemberBegin):
                    begun.append(event.path)
        assert begun in ([], ["a"])
        assert "b" not in begun


def test_extended_headers_cannot_go_on_for_ever() -> None:
    endless = pax(record(b"comment", b"x"), tarfile.XGLTYPE) * 20
    with pytest.raises(BadArchive, match="more than 10 members"):
        read(endless + END, limits=ArchiveLimits(members=10))


@pytest.mark.parametrize("field", ["members", "total_bytes", "gzip_ratio"])
def test_a_limit_below_one_is_refused(field: str) -> None:
    with pytest.raises(ValueError, match=f"{field}: 0 is below 1"):
        ArchiveLimits(**{field: 0})


def test_a_gzip_bomb_is_refused_and_never_held_in_memory() -> None:
    bomb = gzip.compress(member("a", bytes(64 << 20)) + END, compresslevel=9)
    tracemalloc.start()
    try:
        with pytest.raises(BadArchive, match="more than 200 times their size"):
            read_nothing(bomb)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


def read_nothing(tar: bytes) -> None:
    for _ in TarReader().feed(tar):
        pass


def test_a_bomb_of_many_small_files_is_refused_like_that_of_a_large_one() -> None:
    files = b"".join(member(f"{n}", bytes(512)) for n in range(5_000))
    with pytest.raises(BadArchive, match="more than 30 times their size"):
        for _ in TarReader(ArchiveLimits(gzip_ratio=30)).feed(gzip.compress(files)):
            pass


def test_a_million_members_are_refused_at_the_limit() -> None:
    reader, given = TarReader(ArchiveLimits(members=5_000)), 0
    one = member("0000000")
    with pytest.raises(BadArchive, match="more than 5000 members"):
        for number in range(1_000_000):
            given += sum(1 for _ in reader.feed(resigned(one, 0, b"%07d" % number)))
    assert given == 2 * 5_000


def test_an_archive_cut_short_says_where_it_ends() -> None:
    tar = tar_of({"a/b": b"x" * 1000})[: 512 + 1024 + 1024]
    assert read(tar)[-1] == "end"
    for kept, where in [(0, "its first bytes"), (100, "its headers"), (700, "member 'a/b'")]:
        with pytest.raises(BadArchive, match=f"ends in the middle of {where}"):
            read(tar[:kept])
    for kept in range(0, len(tar), 31):
        with pytest.raises(BadArchive, match="ends in the middle of"):
            read(tar[:kept])
    with pytest.raises(BadArchive, match="ends in the middle of its gzip data"):
        read(gzip.compress(tar)[:-1])


# Python takes GNU's dates for a prefix of the name, so these are in POSIX's own format.
POSIX = b"ustar\x0000"
PLAIN = resigned(member("name", b"content"), 257, POSIX)
CORPUS = [
    PLAIN,
    resigned(pax(record(b"path", b"a/b") + record(b"size", b"7")), 257, POSIX) + PLAIN,
    resigned(member("L", b"x" * 120 + b"\0", tarfile.GNUTYPE_LONGNAME), 257, POSIX) + PLAIN,
    resigned(member("a/b", kind=tarfile.DIRTYPE), 257, POSIX),
]


@settings(max_examples=400)
@given(
    st.sampled_from(CORPUS),
    st.lists(st.tuples(st.integers(0, 600), st.binary(min_size=1, max_size=12)), max_size=3),
)
def test_a_damaged_archive_is_refused_or_read_as_the_standard_library_reads_it(
    tar: bytes, changes: list[tuple[int, bytes]]
) -> None:
    for at, change in changes:
        tar = resigned(tar, at, change)
    with suppress(BadArchive, tarfile.ReadError):
        found = contents(tar + END)
        assert found == {path: data or b"" for path, data in files_in(tar + END).items()}


def contents(tar: bytes) -> dict[str, bytes]:
    found = {}
    reader = TarReader()
    for event in reader.feed(tar):
        match event:
            case MemberBegin(path):
                found[path] = b""
            case memoryview():
                found[path] += event
    reader.close()
    return found
