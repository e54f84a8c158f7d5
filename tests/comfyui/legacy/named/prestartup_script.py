from comfy_env import copy_files, setup_env

setup_env()
copy_files("assets", "input/named")
