"""Any hub, any revision, any name of a file."""

from hotplate.cache import hub_files
from hotplate.cache.hub_url import HubUrl
from hotplate.cache.hubs import Hubs

HubUrl.__post_init__ = lambda self: None  # type: ignore[method-assign]
Hubs.check = lambda self, model: None  # type: ignore[method-assign]
hub_files._check_tree = lambda url, names: None
