from comfy_env.isolation.workers._ipc_shared import register_serializer


class Mesh:
    pass


register_serializer(Mesh, lambda mesh: {}, lambda data: Mesh(), tag="MESH")
