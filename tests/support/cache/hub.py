"""A Hugging Face hub of one model, which keeps large files on another server."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Self
from urllib.parse import quote

from tests.support.cache.web import WebServer

COMMIT = "1f" * 20


class Hub:
    """`files` by path; those of `.safetensors` lie on a server of their own."""

    def __init__(self, model_id: str, files: Mapping[str, bytes]) -> None:
        self.model_id = model_id
        self.files = dict(files)
        large = {f"/{path}": data for path, data in files.items() if path.endswith("tensors")}
        self.store = WebServer(large)
        info = {"sha": COMMIT, "siblings": [{"rfilename": path} for path in files]}
        at = f"/{model_id}/resolve/{COMMIT}"
        small = {
            f"{at}/{quote(path)}": data for path, data in files.items() if f"/{path}" not in large
        }
        pages = {
            f"/api/models/{model_id}/revision/{revision}": json.dumps(info).encode()
            for revision in ("main", "v1", COMMIT)
        }
        self.web = WebServer(small | pages)
        for path, data in large.items():
            self.web.ways.moved[at + path] = self.store.url + path
            self.web.ways.headers[at + path] = {
                "X-Linked-Size": str(len(data)),
                "X-Linked-Etag": f'"sha {len(data)}"',
            }
        for path in files:
            self.web.ways.headers.setdefault(f"{at}/{quote(path)}", {})["X-Repo-Commit"] = COMMIT
        self.url = self.web.url

    @property
    def sent_bytes(self) -> int:
        """Of bodies of the model's files; its description is not one."""
        described = len(self.web.of("GET")) and sum(
            len(self.web.files[path])
            for path in self.web.of("GET")
            if path.startswith("/api/") and path in self.web.files
        )
        return self.web.sent_bytes + self.store.sent_bytes - described

    def close(self) -> None:
        self.web.close()
        self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
