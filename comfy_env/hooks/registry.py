"""Which backend serves a name, and which wrappers and observers go with it.

All backends come in as offers, ours too. A name taken twice is an error that names both owners, told to whoever asks
for that name: one bad plugin does not take the others with it.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Any

from comfy_env.errors import BackendError
from comfy_env.hooks import sources
from comfy_env.hooks.observers import Observers
from comfy_env.hooks.relay import Relay
from comfy_env.hooks.sources import Offer
from comfy_env.settings import Settings
from comfy_env.values import EnvPlan

log = logging.getLogger(__name__)


class Registry:
    """The plugins of one pool. `observers` and `wrappers` are given by code, beside what is installed.

    A backend with a method `with_settings(settings)` is asked for one that uses the pool's `settings`.

    Thread-safe: what is found is only ever added, and one name has one relay.
    """

    def __init__(
        self,
        observers: Iterable[Any] = (),
        wrappers: Iterable[Any] = (),
        *,
        settings: Settings | None = None,
        find: sources.Find = sources.installed,
    ) -> None:
        self._find = find
        self._settings = settings
        self._given_observers = tuple(observers)
        self._given_wrappers = tuple(wrappers)
        self._given: dict[str, Offer] = {}
        self._packs: dict[Path, tuple[Offer, ...]] = {}
        self._relays: dict[Offer, Relay] = {}

    def register(self, name: str, obj: Any, owner: str = "code") -> Relay:
        """Offer a backend by code and return its relay; raises BackendError if it is wrong or the name is taken."""
        taken = self._offers(name)
        if taken:
            raise BackendError(f"the name {name!r} of {owner} is taken by {sources.owners(taken)}")
        offer = Offer(name, f"{type(obj).__qualname__} object", owner, value=obj)
        relay = self._relay(offer)
        self._given[name] = offer
        return relay

    def load_pack(self, folder: str | Path) -> tuple[Offer, ...]:
        """Read what a pack's pyproject.toml offers and return it; nothing of the pack is imported."""
        folder = Path(folder).resolve()
        if folder not in self._packs:
            self._packs[folder] = sources.of_pack(folder)
        return self._packs[folder]

    def names(self) -> tuple[str, ...]:
        """Return every name that is offered."""
        return tuple(sorted({offer.name for offer in self.offers()}))

    def offers(self) -> tuple[Offer, ...]:
        """Return every offer, also those that clash; nothing is imported."""
        return (*self._installed, *self._given.values(), *(offer for pack in tuple(self._packs.values()) for offer in pack))

    def backend(self, name: str, plan: EnvPlan | None = None) -> Relay:
        """Return the relay of a backend; raises BackendError if the name is unknown, taken twice, or the backend is wrong.

        A pack's own backend is imported here, and only for a plan of that pack.
        """
        folder = _pack_folder(plan)
        if folder is not None:
            self.load_pack(folder)
        offers = self._offers(name)
        if not offers:
            raise self._unknown(name)
        if len(offers) > 1:
            raise BackendError(f"the backend name {name!r} is taken twice: by {sources.owners(offers)}", hint="remove one of them")
        if offers[0].pack not in (None, folder):
            raise BackendError(f"backend {name!r} belongs to {offers[0].owner}; only environments of that pack may use it")
        return self._relay(offers[0])

    @cached_property
    def observers(self) -> Observers:
        """The observers given by code and those installed; an installed one that is wrong is logged and left out."""
        told = Observers(self._given_observers)
        for offer in self._find(sources.OBSERVERS):
            try:
                told.add(offer.load(), f"observer {offer.name!r} of {offer.owner}")
            except BackendError:
                log.exception("an observer is left out")
        return told

    # ---- what is found

    @cached_property
    def _installed(self) -> tuple[Offer, ...]:
        found = tuple(self._find(sources.BACKENDS))
        known = {(offer.name, offer.target) for offer in found if offer.owner == sources.OURS}
        return (*found, *(offer for offer in sources.built_in() if (offer.name, offer.target) not in known))

    @cached_property
    def _wrappers(self) -> tuple[tuple[str, Any], ...]:
        """Every wrapper with its label, outermost first. One that is wrong is an error: it may be a sandbox."""
        given = tuple((f"wrapper {wrapper!r}", wrapper) for wrapper in self._given_wrappers)
        return (*given, *((f"wrapper {offer.name!r} of {offer.owner}", offer.load()) for offer in self._find(sources.WRAPPERS)))

    def _offers(self, name: str) -> list[Offer]:
        return [offer for offer in self.offers() if offer.name == name]

    def _relay(self, offer: Offer) -> Relay:
        known = self._relays.get(offer)
        return known or self._relays.setdefault(offer, Relay(offer.name, self._settled(offer.load()), self._wrappers))

    def _settled(self, backend: Any) -> Any:
        """Return the backend for this pool's settings, where it can be had for given ones."""
        with_settings = getattr(backend, "with_settings", None)
        return with_settings(self._settings) if with_settings and self._settings else backend

    def _unknown(self, name: str) -> BackendError:
        near = difflib.get_close_matches(name, self.names(), 1)
        hint = f"did you mean {near[0]!r}?" if near else ""
        return BackendError(f"there is no backend {name!r}; there are {', '.join(self.names())}", hint=hint)


def _pack_folder(plan: EnvPlan | None) -> Path | None:
    if plan is None or plan.pack is None or plan.pack.folder is None:
        return None
    return Path(plan.pack.folder).resolve()
