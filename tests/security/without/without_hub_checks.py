"""Any hub, any revision, any name of a file."""

from hotplate.cache.origins import hub_files
from hotplate.cache.origins.hub_url import HubUrl
from hotplate.cache.origins.hubs import Hubs

HubUrl.__post_init__ = lambda self: None  # type: ignore[method-assign]
Hubs.check = lambda self, model: None  # type: ignore[method-assign]
hub_files._check_tree = lambda url, names: None
