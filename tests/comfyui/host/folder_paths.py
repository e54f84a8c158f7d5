import os

from comfy.cli_args import args

base_path = os.path.abspath(args.base_directory) if args.base_directory else os.path.dirname(os.path.realpath(__file__))
models_dir = os.path.join(base_path, "models")
folder_names_and_paths = {
    "checkpoints": ([os.path.join(models_dir, "checkpoints")], {".safetensors", ".ckpt"}),
    "loras": ([os.path.join(models_dir, "loras")], {".safetensors"}),
    "custom_nodes": ([os.path.join(base_path, "custom_nodes")], set()),
}
output_directory = os.path.join(base_path, "output")
temp_directory = os.path.join(base_path, "temp")
input_directory = os.path.join(base_path, "input")
user_directory = os.path.join(base_path, "user")
filename_list_cache = {}


def get_folder_paths(name):
    return folder_names_and_paths[name][0][:]


def get_filename_list(name):
    paths, kinds = folder_names_and_paths[name]
    found = {entry for path in paths if os.path.isdir(path) for entry in os.listdir(path) if os.path.splitext(entry)[1] in kinds}
    return sorted(found)


def add_model_folder_path(name, path, is_default=False):
    paths, _ = folder_names_and_paths.setdefault(name, ([], set()))
    if path not in paths:
        paths.insert(0 if is_default else len(paths), path)


def get_directory_by_type(kind):
    return {"output": output_directory, "temp": temp_directory, "input": input_directory}.get(kind)


def get_input_directory():
    return input_directory


def get_output_directory():
    return output_directory


def get_temp_directory():
    return temp_directory
