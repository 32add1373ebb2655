"""Files below /, by a program that says its port: no code of ours answers."""

import sys

import bentoml

image = bentoml.images.Image(lock_python_packages=False).requirements_file("requirements.txt")

Site = bentoml.Service(
    "Site",
    image=image,
    cmd=[sys.executable, "-m", "http.server", "8000", "--directory", "."],
    config={"endpoints": {"livez": "/"}},
)
