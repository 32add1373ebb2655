"""What a service imports but does not have, and how it gets it; Python >= 3.9, the standard
library."""

from __future__ import annotations

import os
import re
import sys
from importlib.machinery import ModuleSpec
from importlib.util import find_spec

PACKAGES = {
    "Bio": "biopython",
    "Crypto": "pycryptodome",
    "Levenshtein": "levenshtein",
    "MySQLdb": "mysqlclient",
    "OpenSSL": "pyopenssl",
    "PIL": "pillow",
    "attr": "attrs",
    "azure": "the azure-… package that brings it",
    "bs4": "beautifulsoup4",
    "bson": "pymongo",
    "cv2": "opencv-python",
    "dateutil": "python-dateutil",
    "decouple": "python-decouple",
    "discord": "discord.py",
    "distutils": "setuptools",
    "dns": "dnspython",
    "docx": "python-docx",
    "dotenv": "python-dotenv",
    "faiss": "faiss-cpu",
    "ffmpeg": "ffmpeg-python",
    "fitz": "pymupdf",
    "git": "gitpython",
    "github": "pygithub",
    "google": "the google-… package that brings it",
    "googleapiclient": "google-api-python-client",
    "grpc": "grpcio",
    "grpc_tools": "grpcio-tools",
    "jose": "python-jose",
    "jwt": "pyjwt",
    "kafka": "kafka-python",
    "llama_cpp": "llama-cpp-python",
    "magic": "python-magic",
    "mpl_toolkits": "matplotlib",
    "multipart": "python-multipart",
    "nacl": "pynacl",
    "open_clip": "open-clip-torch",
    "opensearchpy": "opensearch-py",
    "osgeo": "gdal",
    "paddle": "paddlepaddle",
    "pdfminer": "pdfminer.six",
    "pkg_resources": "setuptools",
    "pptx": "python-pptx",
    "psycopg2": "psycopg2-binary",
    "ruamel": "ruamel.yaml",
    "serial": "pyserial",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "slugify": "python-slugify",
    "snappy": "python-snappy",
    "socketio": "python-socketio",
    "speech_recognition": "speechrecognition",
    "telegram": "python-telegram-bot",
    "umap": "umap-learn",
    "usb": "pyusb",
    "websocket": "websocket-client",
    "whisper": "openai-whisper",
    "yaml": "pyyaml",
    "zmq": "pyzmq",
}
"""Packages of modules that have another name; `a_b` and `a-b` are the same to an index."""

_REQUIREMENTS = "the image's python_packages (requirements)"
_LIBRARY = re.compile(r"(\S+\.so[.\d]*): cannot open shared object file")


def what_is_missing(error: BaseException, bento: str) -> str:
    """One sentence with what to do, if a start failed with `error` because of an import; else "".
    `bento` is the folder with the service's sources."""
    failed = _failed_import(error)
    if failed is None:
        return ""
    if library := _LIBRARY.match(str(failed)):
        return (
            f"the service needs the system library '{library[1]}', which this machine does not "
            "have: install the system package that has it there; those of a bento are not installed"
        )
    name = failed.name or ""
    top = name.partition(".")[0]
    pythons = top.startswith("_") or top in getattr(sys, "stdlib_module_names", ())
    if not isinstance(failed, ModuleNotFoundError) or not top.isidentifier() or pythons:
        return ""
    package, spec = PACKAGES.get(top, top), _spec_of(top)
    if spec is not None and _is_below(bento, spec):
        return (
            f"the service imports '{name}' from its own sources, which the bento does not have: "
            "add the file to what the bento includes, and build it again"
        )
    if spec is None or spec.origin is None:  # the latter: others have packages below its name
        own = "" if top in PACKAGES else ", or its file to what the bento includes if it is yours"
        return (
            f"the service imports '{name}', which its environment does not have: "
            f"add {package} to {_REQUIREMENTS}{own}"
        )
    return (
        f"the service imports '{name}', which the version of {package} in its environment does "
        f"not have: name one that has it in {_REQUIREMENTS}"
    )


def _failed_import(error: BaseException | None) -> ImportError | None:
    """The failed import that `error` is, or was raised from. BentoML does not chain its own."""
    while error is not None and not isinstance(error, ImportError):
        bentomls = type(error).__name__ == "ImportServiceError"
        error = error.__context__ if bentomls else error.__cause__
    return error


def _spec_of(module: str) -> ModuleSpec | None:
    try:
        return find_spec(module)
    except (ImportError, AttributeError, ValueError):
        return None


def _is_below(folder: str, spec: ModuleSpec) -> bool:
    top = os.path.realpath(folder) + os.sep
    places = spec.submodule_search_locations or [spec.origin or ""]
    return any(os.path.realpath(place).startswith(top) for place in places)
