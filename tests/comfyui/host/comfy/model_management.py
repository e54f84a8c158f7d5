"""Interrupts, and the list of loaded models with the loop that frees memory."""

import gc
import sys
import threading
import weakref

_interrupt = False
_mutex = threading.RLock()


class InterruptProcessingException(Exception):
    pass


class OutOfMemory(Exception):
    pass


OOM_EXCEPTION = OutOfMemory


def interrupt_current_processing(value=True):
    global _interrupt
    with _mutex:
        _interrupt = value


def processing_interrupted():
    with _mutex:
        return _interrupt


def throw_exception_if_processing_interrupted():
    global _interrupt
    with _mutex:
        wanted, _interrupt = _interrupt, False
    if wanted:
        raise InterruptProcessingException()


# ---------------------------------------------------------------- memory

DEVICE = "cpu"
FREE = {"bytes": 0}
DISABLE_SMART_MEMORY = False
current_loaded_models = []


def get_torch_device():
    return DEVICE


def get_free_memory(device=None, torch_free_too=False):
    return (FREE["bytes"], 0) if torch_free_too else FREE["bytes"]


def minimum_inference_memory():
    return 1024


def soft_empty_cache(force=False):
    pass


class LoadedModel:
    def __init__(self, model):
        self._model = weakref.ref(model)
        self._parent = None if model.parent is None else weakref.ref(model.parent)
        self.device = model.load_device
        self.real_model = None
        self.currently_used = True
        self.model_finalizer = None

    @property
    def model(self):
        return self._model()

    def model_memory(self):
        return self.model.model_size()

    def model_loaded_memory(self):
        return self.model.loaded_size()

    def model_offloaded_memory(self):
        return self.model.model_size() - self.model.loaded_size()

    def model_load(self):
        self.model.model_patches_to(self.device)
        self.model.model_patches_to(self.model.model_dtype())
        self.model.partially_load(self.device, 1e32, force_patch_weights=False)
        real = self.model.model
        self.real_model = weakref.ref(real)
        self.model_finalizer = weakref.finalize(real, cleanup_models)

    def model_unload(self, memory_to_free=None, unpatch_weights=True):
        if memory_to_free is not None and memory_to_free < self.model.loaded_size():
            if self.model.partially_unload(self.model.offload_device, memory_to_free) >= memory_to_free:
                return False
        self.model.detach(unpatch_weights)
        self.model_finalizer.detach()
        self.model_finalizer = self.real_model = None
        return True

    def __eq__(self, other):
        return self.model is other.model

    def is_dead(self):
        return self.real_model() is not None and self.model is None


def cleanup_models_gc():
    if any(one.is_dead() for one in current_loaded_models):
        gc.collect()


def cleanup_models():
    for index in [i for i, one in enumerate(current_loaded_models) if one.real_model() is None][::-1]:
        current_loaded_models.pop(index)


def free_memory(memory_required, device, keep_loaded=()):
    cleanup_models_gc()
    candidates = []
    for index in range(len(current_loaded_models) - 1, -1, -1):
        one = current_loaded_models[index]
        if one.device == device and one not in keep_loaded and not one.is_dead():
            candidates.append((-one.model_offloaded_memory(), sys.getrefcount(one.model), one.model_memory(), index))
            one.currently_used = False
    unloaded = []
    for *_, index in sorted(candidates):
        free = get_free_memory(device)
        if not DISABLE_SMART_MEMORY and free > memory_required:
            break
        if current_loaded_models[index].model_unload(None if DISABLE_SMART_MEMORY else memory_required - free):
            unloaded.append(index)
    return [current_loaded_models.pop(index) for index in sorted(unloaded, reverse=True)]


def load_models_gpu(models, memory_required=0, **more):
    cleanup_models_gc()
    for model in models:
        loaded = LoadedModel(model)
        if loaded in current_loaded_models:
            current_loaded_models[current_loaded_models.index(loaded)].currently_used = True
            continue
        if loaded.device != "cpu":
            free_memory(model.model_size() * 1.1 + max(minimum_inference_memory(), memory_required), loaded.device)
        loaded.model_load()
        current_loaded_models.insert(0, loaded)


def unload_all_models():
    free_memory(1e30, get_torch_device())
