"""What builds in pods inherit of the control plane's variables."""

from __future__ import annotations

from hotplate.serving.replica.inherited import for_pod_build

KEPT = {
    "UV_DEFAULT_INDEX": "https://user:password@index.example/simple",
    "UV_INDEX_OWN_PASSWORD": "password",
    "PIP_INDEX_URL": "https://index.example/simple",
    "HTTPS_PROXY": "http://proxy.example:3128",
    "no_proxy": "index.example",
    "UV_HTTP_TIMEOUT": "60",
}
LEFT = {
    "AWS_SECRET_ACCESS_KEY": "secret",
    "HOTPLATE_TOKEN": "secret",
    "PATH": "/usr/bin",
    "HOME": "/root",
    "SSL_CERT_FILE": "/etc/own.pem",
    "UV_CACHE_DIR": "/var/cache/uv",
    "PIP_FIND_LINKS": "file:///opt/wheels",
    "PIP_CERT": "~/own.pem",
    "UV_CONFIG_FILE": "./uv.toml",
    "UV_PYTHON": "3.12",
    "UV_PYTHON_DOWNLOADS": "automatic",
    "CUDA_HOME": "/opt/cuda",
}


def test_package_indexes_and_proxies_and_no_places_or_credentials_of_the_platform() -> None:
    assert for_pod_build({**KEPT, **LEFT}) == KEPT
