"""When two runs of a node would give the same: a digest over its class, its inputs and everything those come from."""

from __future__ import annotations

import hashlib
import json
import math
import uuid
from collections.abc import Mapping
from typing import Any

from comfy_env.runner.catalog import NodeClass
from comfy_env.runner.workflow import Link, Node

UNKNOWN = float("nan")
"""What IS_CHANGED says when it cannot tell: equal to nothing, so the node runs."""


def signature(node: Node, kind: NodeClass, upstream: Mapping[str, str], changed: Any) -> str:
    """Return the digest; `upstream` holds those of the nodes it is linked to, `changed` what IS_CHANGED said."""
    inputs = {name: ["link", upstream[v.node], v.slot] if isinstance(v, Link) else ["value", _stamp(v)] for name, v in node.inputs.items()}
    facts = [kind.home.plan.key, str(kind.home.root), kind.name, node.id if kind.tied_to_node else "", inputs, _stamp(changed)]
    return hashlib.sha256(json.dumps(facts, sort_keys=True, default=repr).encode()).hexdigest()


def _stamp(changed: Any) -> Any:
    """Return a value that is equal exactly when `changed` is; a NaN inside never is."""
    if isinstance(changed, float) and math.isnan(changed):
        return uuid.uuid4().hex
    if isinstance(changed, (list, tuple)):
        return [_stamp(one) for one in changed]
    if isinstance(changed, dict):
        return [[_stamp(key), _stamp(value)] for key, value in changed.items()]
    return [type(changed).__name__, changed]
