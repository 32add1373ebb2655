"""Requests and answers as bytes: those that are read, and those that could be read in two ways."""

POST = b"POST / HTTP/1.1\r\nHost: a\r\n"
GET = b"GET /after HTTP/1.1\r\nHost: a\r\n\r\n"
CHUNKS = POST + b"Transfer-Encoding: chunked\r\n\r\n"

REFUSED = {
    "a bare line feed before the request": b"\n" + GET,
    "a bare carriage return before the request": b"\r" + GET,
    "a bare line feed between two requests": GET + b"\r\n\n" + GET,
    "two spaces before the target": b"GET  / HTTP/1.1\r\nHost: a\r\n\r\n",
    "two spaces behind the target": b"GET /  HTTP/1.1\r\nHost: a\r\n\r\n",
    "no version": b"GET /\r\n\r\n",
    "HTTP/0.9": b"GET / HTTP/0.9\r\nHost: a\r\n\r\n",
    "HTTP/1.2": b"GET / HTTP/1.2\r\nHost: a\r\n\r\n",
    "HTTP/2.0": b"GET / HTTP/2.0\r\nHost: a\r\n\r\n",
    "the preface of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "RTSP": b"GET / RTSP/1.0\r\nHost: a\r\n\r\n",
    "a method in lower case": b"get / HTTP/1.1\r\nHost: a\r\n\r\n",
    "an asterisk without OPTIONS": b"GET * HTTP/1.1\r\nHost: a\r\n\r\n",
    "a fragment": b"GET /a#b HTTP/1.1\r\nHost: a\r\n\r\n",
    "a user in the target": b"GET http://me@b/ HTTP/1.1\r\nHost: a\r\n\r\n",
    "two hosts in one": b"GET / HTTP/1.1\r\nHost: a, b\r\n\r\n",
    "a path in the host": b"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n",
    "a user in the host": b"GET / HTTP/1.1\r\nHost: a@b\r\n\r\n",
    "NUL in a value": b"GET / HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n",
    "NUL in a name": b"GET / HTTP/1.1\r\nHost: a\r\nX\0: a\r\n\r\n",
    "NUL in the target": b"GET /\0 HTTP/1.1\r\nHost: a\r\n\r\n",
    "the same length twice": POST + b"Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
    "a length in hex": POST + b"Content-Length: 0x3\r\n\r\nabc",
    "a length below nothing": POST + b"Content-Length: -3\r\n\r\nabc",
    "a length of 2^64": POST + b"Content-Length: 18446744073709551616\r\n\r\n",
    "chunked twice": POST + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    "chunked on two lines": POST + b"Transfer-Encoding: chunked\r\n" * 2 + b"\r\n0\r\n\r\n",
    "chunked and then gzip": POST + b"Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
    "an empty coding": POST + b"Transfer-Encoding:\r\n\r\n",
    "a chunk's size with a plus": CHUNKS + b"+3\r\nabc\r\n0\r\n\r\n",
    "a chunk's size with a minus": CHUNKS + b"-3\r\nabc\r\n0\r\n\r\n",
    "a chunk's size with 0x": CHUNKS + b"0x3\r\nabc\r\n0\r\n\r\n",
    "a chunk's size with an underscore": CHUNKS + b"1_0\r\n" + b"a" * 16 + b"\r\n0\r\n\r\n",
    "a chunk's size behind a space": CHUNKS + b" 3\r\nabc\r\n0\r\n\r\n",
    "a chunk's size before a space": CHUNKS + b"3 \r\nabc\r\n0\r\n\r\n",
    "no chunk size": CHUNKS + b"\r\nabc\r\n0\r\n\r\n",
    "a chunk of 2^64": CHUNKS + b"10000000000000000\r\nabc\r\n0\r\n\r\n",
    "a chunk of 2^64 and 3": CHUNKS + b"10000000000000003\r\nabc\r\n0\r\n\r\n",
    "a chunk's size with many zeros": CHUNKS + b"0" * 17 + b"3\r\nabc\r\n0\r\n\r\n",
    "a chunk longer than it says": CHUNKS + b"3\r\nabcd\r\n0\r\n\r\n",
    "a bare line feed behind a chunk's size": CHUNKS + b"3\nabc\r\n0\r\n\r\n",
    "a bare line feed behind a chunk": CHUNKS + b"3\r\nabc\n0\r\n\r\n",
    "a bare line feed behind the last chunk": CHUNKS + b"3\r\nabc\r\n0\n\r\n",
    "a bare line feed at the end": CHUNKS + b"3\r\nabc\r\n0\r\n\n",
    "a bare line feed in an extension": CHUNKS + b"3;a\nb\r\nabc\r\n0\r\n\r\n",
    "a bare carriage return in an extension": CHUNKS + b"3;a\rb\r\nabc\r\n0\r\n\r\n",
    "NUL in an extension": CHUNKS + b"3;a\0\r\nabc\r\n0\r\n\r\n",
    "an extension without end": CHUNKS + b"3;" + b"a" * 5000,
    "long extensions of small chunks": CHUNKS + (b"1;" + b"a" * 1000 + b"\r\nb\r\n") * 20,
    "a bare line feed behind a trailer": CHUNKS + b"0\r\nX: y\n\r\n",
    "a folded trailer": CHUNKS + b"0\r\nX: y\r\n z\r\n\r\n",
    "a trailer with a space before the colon": CHUNKS + b"0\r\nX : y\r\n\r\n",
    "NUL in a trailer": CHUNKS + b"0\r\nX: \0\r\n\r\n",
    "a trailer without a name": CHUNKS + b"0\r\n: y\r\n\r\n",
}
OTHER_STATUS = {
    "gzip and then chunked": (501, POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n"),
    "another expectation": (417, POST + b"Expect: wonders\r\nContent-Length: 3\r\n\r\n"),
    "too many trailers": (431, CHUNKS + b"0\r\n" + b"X: y\r\n" * 200),
    "trailers without end": (431, CHUNKS + b"0\r\nX: " + b"y" * 65536),
    "a header line without end": (431, POST + b"X: " + b"y" * 65536),
    "a target without end": (414, b"GET /" + b"a" * 16384),
}

READ = {
    "empty lines between requests": (GET + b"\r\n\r\n" + GET, [b"", b""]),
    "a length with zeros before it": (
        POST + b"Content-Length: 003\r\n\r\nabc" + GET,
        [b"abc", b""],
    ),
    "a body for GET": (GET[:-2] + b"Content-Length: 3\r\n\r\nabc" + GET, [b"abc", b""]),
    "chunks": (
        CHUNKS + b"3\r\nabc\r\n0A\r\n0123456789\r\n0\r\n\r\n" + GET,
        [b"abc0123456789", b""],
    ),
    "extensions": (CHUNKS + b'3;a=b;c="d;e"\r\nabc\r\n0;f\r\n\r\n' + GET, [b"abc", b""]),
    "many small chunks": (CHUNKS + b"1\r\nb\r\n" * 5000 + b"0\r\n\r\n", [b"b" * 5000]),
    "nothing in chunks": (CHUNKS + b"0\r\n\r\n" + GET, [b"", b""]),
    "an asterisk": (b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", [b""]),
    "nothing after a close": (GET[:-2] + b"Connection: close\r\n\r\n" + GET, [b""]),
    "a body and a close": (
        POST + b"Connection: close\r\nContent-Length: 3\r\n\r\nabc" + b"rubbish",
        [b"abc"],
    ),
    "an offer of HTTP/2 with chunks": (
        CHUNKS[:-2] + b"Connection: Upgrade\r\nUpgrade: h2c\r\n\r\n1\r\na\r\n0\r\n\r\n" + GET,
        [b"a", b""],
    ),
}

OK = b"HTTP/1.1 200 OK\r\n"
ANSWERS = {
    "a length": OK + b"Content-Length: 3\r\n\r\nabc",
    "chunks and a trailer": OK + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX: y\r\n\r\n",
    "until the end": OK + b"\r\nall of it",
    "no content": b"HTTP/1.1 204 No Content\r\n\r\n",
    "not modified": b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n",
    "an interim one": b"HTTP/1.1 100 Continue\r\n\r\n" + OK + b"Content-Length: 0\r\n\r\n",
    "HTTP/1.0": b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 3\r\n\r\nabc",
    "two": OK + b"Content-Length: 3\r\n\r\nabc" + OK + b"X: of-the-second\r\n\r\n",
    "two in chunks": (OK + b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n") * 2,
    "another coding": OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    "NUL in the reason": b"HTTP/1.1 200 O\0\r\nContent-Length: 3\r\n\r\nabc",
    "a body behind an interim one": b"HTTP/1.1 147 OK\r\nContent-Length: 3\r\n\r\nabc"
    + OK
    + b"Content-Length: 0\r\n\r\n",
    "a status below 100": b"HTTP/1.1 050 OK\r\n\r\n" + OK + b"Content-Length: 0\r\n\r\n",
    "a length that only our worker says": OK
    + b"Hotplate-Answer-Bytes: 1\r\nContent-Length: 3\r\n\r\nabc",
    "both lengths": OK + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a tunnel": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n",
}
