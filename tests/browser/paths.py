"""All pages of the dashboard, of the town."""

from __future__ import annotations

NAME, SPACE = "chat", "notebook"
PATHS = (
    "/",
    "/deployments",
    f"/deployments/{NAME}",
    f"/deployments/{NAME}/replicas",
    f"/deployments/{NAME}/logs",
    f"/deployments/{NAME}/revisions",
    f"/deployments/{NAME}/why",
    f"/deployments/{NAME}/playground",
    f"/deployments/{NAME}/settings",
    f"/codespaces/{SPACE}",
    "/bentos",
    "/models",
    "/models/weights/v1",
    "/platform",
    "/costs",
    "/organization",
    "/organizations",
    "/api_tokens",
    "/secrets",
    "/audit",
)
