"""The settings that a BentoML service has, as data: how each is read, or what is inside it.

From BentoML 1.4.39: `_bentoml_sdk/service/config.py`, which checks what authors write, and
`bentoml/_internal/configuration/v2`, which checks the same again, overridden, in each replica. What
one of them takes is taken here; amounts of resources are read elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hotplate.platform.spec.fields import Fields

Read = Callable[[Fields, str], object]
"""Raises Invalid where the value at a key cannot be meant."""
Settings = Mapping[str, "Read | Settings"]


def _anything(_: Fields, __: str) -> None:
    pass


def _text(fields: Fields, key: str) -> None:
    fields.text(key, "")


def _whole(fields: Fields, key: str) -> None:
    fields.number(key, low=-(2**31))


def _count(fields: Fields, key: str) -> None:
    fields.number(key, low=1)


_ENABLED: Settings = {"enabled": Fields.flag}
_ADDRESS: Settings = {"host": _text, "port": _count}

SERVICE_SETTINGS: Settings = {
    "name": _text,
    "traffic": {
        "timeout": Fields.amount,
        "max_concurrency": _count,
        "concurrency": _count,
        "external_queue": Fields.flag,
    },
    "resources": {
        "cpu": _anything,
        "memory": _anything,
        "gpu": _anything,
        "gpu_type": _text,
        "tpu_type": _text,
    },
    "workers": _anything,
    "threads": _count,
    "replicate_process": Fields.flag,
    "extra_ports": Fields.values,
    "backlog": _count,
    "batching": {**_ENABLED, "max_batch_size": _count, "max_latency_ms": _count},
    "max_runner_connections": _count,
    "runner_connection": {"max_requests": _count, "max_age": Fields.amount},
    "runner_probe": {**_ENABLED, "timeout": _whole, "period": _whole},
    "endpoints": {"livez": _text, "readyz": _text},
    "metrics": {
        **_ENABLED,
        "namespace": _text,
        "duration": {
            "buckets": Fields.values,
            "min": Fields.amount,
            "max": Fields.amount,
            "factor": Fields.amount,
        },
    },
    "logging": {
        "access": {
            **_ENABLED,
            "skip_paths": Fields.values,
            "request_content_length": Fields.flag,
            "request_content_type": Fields.flag,
            "response_content_length": Fields.flag,
            "response_content_type": Fields.flag,
            "format": {"trace_id": _text, "span_id": _text},
        }
    },
    "ssl": {
        **_ENABLED,
        "certfile": _text,
        "keyfile": _text,
        "keyfile_password": _text,
        "ca_certs": _text,
        "version": _count,
        "cert_reqs": _whole,
        "ciphers": _text,
    },
    "http": {
        **_ADDRESS,
        "proxy_port": _count,
        "cors": {
            **_ENABLED,
            "access_control_allow_origins": Fields.texts,
            "access_control_allow_credentials": Fields.flag,
            "access_control_allow_methods": Fields.texts,
            "access_control_allow_headers": Fields.texts,
            "access_control_allow_origin_regex": _text,
            "access_control_max_age": _whole,
            "access_control_expose_headers": Fields.texts,
        },
        "response": {"trace_id": Fields.flag},
    },
    "grpc": {
        **_ADDRESS,
        "max_concurrent_streams": _whole,
        "maximum_concurrent_rpcs": _whole,
        "max_message_length": _whole,
        "metrics": _ADDRESS,
        "reflection": _ENABLED,
        "channelz": _ENABLED,
    },
    "monitoring": {**_ENABLED, "type": _text, "options": Fields.mapping},
    "tracing": {
        "exporter_type": _text,
        "sample_rate": _anything,
        "timeout": _count,
        "max_tag_value_length": _whole,
        "excluded_urls": Fields.texts,
        "zipkin": {
            "endpoint": _text,
            "local_node_ipv4": _anything,
            "local_node_ipv6": _anything,
            "local_node_port": _count,
        },
        "jaeger": {
            "protocol": _text,
            "collector_endpoint": _text,
            "grpc": {"insecure": Fields.flag},
            "thrift": {
                "agent_host_name": _text,
                "agent_port": _whole,
                "udp_split_oversized_batches": Fields.flag,
            },
        },
        "otlp": {
            "protocol": _text,
            "endpoint": _text,
            "compression": _text,
            "http": {"headers": Fields.mapping, "certificate_file": _text},
            "grpc": {"insecure": Fields.flag, "headers": Fields.values},
        },
    },
}
