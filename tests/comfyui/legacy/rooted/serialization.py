from comfy_env.isolation.workers._ipc_shared import register_serializer


class Mesh:
    def __init__(self, points):
        self.points = points


register_serializer("Mesh", lambda mesh, recurse: recurse(mesh.points), lambda data, recurse: Mesh(recurse(data)), tag="MESH")
