"""The closed list of frame kinds: who sends each, what its payload holds, what answers it.

"Host" is the side that started the other. Payloads are values of the codec in `payload.py`; a dict's unknown keys are
ignored and missing ones have the default written here.
"""

import enum


class Kind(enum.IntEnum):
    # joining; payloads of these are raw bytes or JSON, read before any codec exists
    CHALLENGE = 1      # both: 32 random bytes
    RESPONSE = 2       # both: HMAC-SHA-256 over role, nonce, generation and the other's challenge
    HELLO = 3          # both, JSON: protocol, features, nonce, generation, cache_tag, python, pid, executable
    STAGE = 4          # worker, JSON: {"stage": "started" | "authenticated" | "ready" | free text}; a sign of life

    # main lane, host asks; `request` of the answer equals that of the question
    CALL = 10          # {"target": "module:function" | a callable by value, "args": tuple, "kwargs": dict, "node": dict | None}
    REPLY = 11         # worker: {"value": any, "held": int}
    RAISED = 12        # worker: {"type": [module, qualname], "args": tuple, "text": str, "traceback": str, "held": int}
    INTERRUPTED = 13   # worker: {"held": int}: the call ended because its interrupt flag was set
    REFUSED = 14       # worker: {"error": "encode" | "decode" | "reference" | "busy", "text": str}: not served; the lane is in order
    PING = 15
    PONG = 16          # worker: {"held": int}
    CANARY = 17        # {"content": a buffer}
    CANARY_BACK = 18   # worker: {"digest": str, "content": a buffer, "versions": dict}
    RELEASE = 19       # {"bytes": int | None, "which": str}: which names one thing that the worker told it holds, "" all
    RECEIPT = 20       # worker: {"freed": int, "held": int}
    DROP = 21          # {"ids": list[int]}: references the host no longer holds; no answer
    GOODBYE = 22       # the worker ends by itself; no answer
    FETCH = 26         # {"id": int}: an object that another worker wants
    FETCHED = 27       # worker: {"blob": a buffer, read by a worker only} | {"error": str}

    # main lane, host asks, where both hellos name the feature "devices"
    DEVICE = 28        # {"facts": True} | {"uuid": str, "canary": list of tensors, "in_place": bool} | {"verdicts": {uuid: str}}
    DEVICE_BACK = 29   # worker: {"facts": dict, "uuids": list[str]} | {"digest": str, "echo": list of tensors} | {} | {"why": str}

    # main lane, both, where both hellos name the feature "arena"; raw bytes, read by the lane itself; no answer
    SEGMENT = 24       # number, size, device and inode of a segment of shared memory whose descriptor comes along
    RETURN = 25        # counts, then: leases given back, segments that cannot be used here, segments that are no more

    # main lane, the worker asks while it serves a CALL
    PROGRESS = 30      # {"value": float, "total": float, "node": str, "preview": any}; no answer
    CALLBACK = 31      # {"name": str, "args": tuple, "kwargs": dict}
    ANSWER = 32        # host: {"value": any} | {"error": {"type": [module, qualname], "text": str}}

    # side lane
    SIDE_PING = 40
    SIDE_PONG = 41
    INTERRUPT = 42     # {"request": int}: the CALL to interrupt; no answer; a call that already ended is not touched
    REFRESH = 43       # {"pack": str, "class": str}: INPUT_TYPES again, only of a pack already imported
    FINGERPRINT = 44   # {"pack": str, "class": str, "kwargs": dict}
    SIDE_REPLY = 45    # worker: {"value": any} | {"error": str} | {"absent": True}: the pack was not imported yet
    VALIDATE = 46      # {"pack": str, "class": str, "kwargs": dict}: what VALIDATE_INPUTS says of constant inputs
