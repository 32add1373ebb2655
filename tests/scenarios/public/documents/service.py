"""Takes files and makes files."""

import typing as t
from pathlib import Path

import bentoml
from bentoml.validators import ContentType

image = bentoml.images.Image(lock_python_packages=False).requirements_file("requirements.txt")

Text = t.Annotated[Path, ContentType("text/plain")]


@bentoml.service(image=image, traffic={"timeout": 60})
class Documents:
    @bentoml.api
    def count(self, document: Text, word: str = "the") -> int:
        return document.read_text().split().count(word)

    @bentoml.api
    def append(self, document: Text, line: str) -> Text:
        with document.open("a") as file:
            file.write(line)
        return document

    @bentoml.api
    def keep(self, document: Path) -> int:
        kept = document.rename(f"kept-{document.name}")
        return kept.stat().st_size

    @bentoml.api
    def join(self, documents: t.List[Path], ctx: bentoml.Context) -> Path:
        joined = Path(ctx.temp_dir, "joined.bin")
        joined.write_bytes(b"".join(document.read_bytes() for document in documents))
        return joined
