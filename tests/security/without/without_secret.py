"""Services of a revision answer each other without asking who calls."""

from hotplate.serving.gateway.admission import internal_callers

INSTEAD = [(internal_callers, "refuse_strangers", lambda route, request: None)]
