"""A worker's environment variables: a deny-list of what is known to break, secrets only where asked for."""

from __future__ import annotations

import os

import pytest

from comfy_env.process.launch import worker_variables
from comfy_env.process.variables import visible_device, with_huge_pages, with_tools_of
from comfy_env.values import EnvPlan

# name -> (the host's value, what a worker gets; None: it does not get it)
SAME = "what the host has"
GOLDEN = {
    # hardware and numerics: users needed each of these
    "HSA_OVERRIDE_GFX_VERSION": ("10.3.0", SAME), "PYTORCH_HIP_ALLOC_CONF": ("garbage_collection_threshold:0.9", SAME),
    "HIP_VISIBLE_DEVICES": ("0", SAME), "ROCR_VISIBLE_DEVICES": ("0", SAME), "ROCM_PATH": ("/opt/rocm", SAME),
    "ONEAPI_DEVICE_SELECTOR": ("level_zero:0", SAME), "CUDA_VISIBLE_DEVICES": ("1", SAME), "CUDA_HOME": ("/usr/local/cuda", SAME),
    "CUDA_LAUNCH_BLOCKING": ("1", SAME), "NVIDIA_VISIBLE_DEVICES": ("all", SAME), "PYTORCH_ENABLE_MPS_FALLBACK": ("1", SAME),
    "OMP_NUM_THREADS": ("4", SAME), "MKL_NUM_THREADS": ("4", SAME), "TORCH_HOME": ("/models/torch", SAME),
    "TORCHINDUCTOR_CACHE_DIR": ("/tmp/ti", SAME), "TRITON_CACHE_DIR": ("/tmp/tr", SAME), "LD_LIBRARY_PATH": ("/opt/rocm/lib", SAME),
    "LD_PRELOAD": ("libtcmalloc.so", SAME), "XDG_CACHE_HOME": ("/home/u/.cache", SAME),
    # models, proxies, language, places
    "HF_HOME": ("/models/hf", SAME), "HF_ENDPOINT": ("https://hf-mirror.com", SAME), "TRANSFORMERS_OFFLINE": ("1", SAME),
    "TOKENIZERS_PARALLELISM": ("false", SAME), "HTTP_PROXY": ("http://u:p@proxy:3128", SAME), "https_proxy": ("http://proxy:3128", SAME),
    "SSL_CERT_FILE": ("/etc/ssl/own.pem", SAME), "REQUESTS_CA_BUNDLE": ("/etc/ssl/own.pem", SAME), "LANG": ("de_DE.UTF-8", SAME),
    "LC_ALL": ("C.UTF-8", SAME), "TZ": ("Europe/Berlin", SAME), "TEMP": ("/t", SAME), "TMPDIR": ("/t", SAME), "HOME": ("/home/u", SAME),
    "USER": ("u", SAME), "DISPLAY": (":0", SAME), "XAUTHORITY": ("/home/u/.Xauthority", SAME), "PWD": ("/home/u", SAME),
    "COMFYUI_PATH": ("/home/u/ComfyUI", SAME), "MAX_TOKENS": ("77", SAME), "PYTHONUTF8": ("1", SAME), "MPLBACKEND": ("agg", SAME),
    # the allocator is per process; its other keys stay
    "PYTORCH_CUDA_ALLOC_CONF": ("backend:cudaMallocAsync,expandable_segments:True", "expandable_segments:True"),
    "PYTORCH_ALLOC_CONF": ("roundup_power2_divisions:[256:1,512:2], backend:cudaMallocAsync", "roundup_power2_divisions:[256:1,512:2]"),
    "PYTORCH_NO_CUDA_MEMORY_CACHING": ("1", None),
    # Python, virtual environments, conda and their tools
    "PYTHONPATH": ("/home/u/ComfyUI", None), "PYTHONHOME": ("/usr", None), "PYTHONSTARTUP": ("/x.py", None), "PYTHONUSERBASE": ("/x", None),
    "VIRTUAL_ENV": ("/home/u/venv", None), "VIRTUAL_ENV_PROMPT": ("(venv)", None), "CONDA_PREFIX": ("/conda", None),
    "CONDA_DEFAULT_ENV": ("base", None), "_CE_CONDA": ("", None), "MAMBA_ROOT_PREFIX": ("/mamba", None), "PIXI_PROJECT_ROOT": ("/p", None),
    "PIP_TARGET": ("/x", None), "UV_PYTHON": ("3.8", None), "PYENV_VERSION": ("3.8.1", None), "POETRY_ACTIVE": ("1", None),
    "PYTEST_CURRENT_TEST": ("t", None), "__PYVENV_LAUNCHER__": ("/x", None), "DEBUGPY_RUNNING": ("true", None),
    # secrets
    "HF_TOKEN": ("s", None), "AWS_ACCESS_KEY_ID": ("s", None), "AWS_REGION": ("eu", None), "GITHUB_TOKEN": ("s", None),
    "COMFY_API_KEY": ("s", None), "API_KEY_COMFY_ORG": ("s", None), "OPENAI_API_KEY": ("s", None), "CIVITAI_API_TOKEN": ("s", None),
    "PGPASSWORD": ("s", None), "DB_PASS": ("s", None), "GITHUBTOKEN": ("s", None), "SMTP_PWD": ("s", None), "DBPWD": ("s", None),
    "MyApiKey": ("s", None), "SSHPASS": ("s", None), "REGISTRY_AUTH_BEARER": ("s", None),
    "BROKER": ("amqp://guest:s3cret@mq:5672/", None), "MIRRORS": ("https://a/ https://u:s3cret@b/simple", None),
    "PIP_INDEX_URL": ("https://u:s3cret@index/simple", None), "all_proxy": ("socks5://u:p@proxy", SAME),
    # names and values that only look like secrets
    "PASSAGE": ("free", SAME), "COMPASS": ("north", SAME), "BYPASS": ("1", SAME), "OLDPWD": ("/home/u", SAME), "TOKENIZER": ("bpe", SAME),
    "KEYBOARD": ("de", SAME), "SECRETARY": ("ann", SAME), "MODEL_URL": ("https://host:8443/a@b", SAME),
    "GIT_URL": ("ssh://git@host/x", SAME),
    "MIRROR": ("http://host:80/p?to=u:p@x", SAME), "AUTHOR": ("ann", SAME),
    "DB_PASSWORD": ("s", None), "MYSQL_PWD": ("s", None), "SSH_AUTH_SOCK": ("/s", None), "GOOGLE_APPLICATION_CREDENTIALS": ("/s", None),
}
PLAN = EnvPlan(key="pack-a")


def chosen(host: dict[str, str], plan: EnvPlan = PLAN) -> dict[str, str]:
    return worker_variables(plan, host, nonce="n", host_nonce="h", generation=3)


@pytest.mark.parametrize("name", GOLDEN)
def test_each_variable_of_the_golden_table_reaches_a_worker_as_the_table_says(name):
    value, wanted = GOLDEN[name]
    host = {key: given for key, (given, _) in GOLDEN.items()}
    assert chosen(host).get(name) == (value if wanted is SAME else wanted)


def test_the_golden_table_is_long_enough_to_mean_something():
    assert len(GOLDEN) >= 60


def test_a_worker_is_told_its_nonces_environment_and_generation_whatever_the_host_inherited():
    found = chosen({"COMFY_ENV_NONCE": "of another worker", "COMFY_ENV_GENERATION": "9"})
    assert {name: found[name] for name in found if name.startswith("COMFY_ENV_")} == {
        "COMFY_ENV_NONCE": "n", "COMFY_ENV_HOST_NONCE": "h", "COMFY_ENV_ENV": "pack-a", "COMFY_ENV_GENERATION": "3",
    }


def test_a_secret_passes_when_the_plan_asks_for_it_by_name():
    found = chosen({"HF_TOKEN": "s", "OPENAI_API_KEY": "s"}, EnvPlan(key="k", secrets=("HF_TOKEN",)))
    assert found["HF_TOKEN"] == "s" and "OPENAI_API_KEY" not in found


def test_asking_for_a_secret_does_not_open_a_door_for_interpreter_variables():
    assert "PYTHONPATH" not in chosen({"PYTHONPATH": "/x"}, EnvPlan(key="k", secrets=("PYTHONPATH",)))


def test_variables_of_the_plan_win_over_the_hosts():
    assert chosen({"OMP_NUM_THREADS": "4"}, EnvPlan(key="k", variables={"OMP_NUM_THREADS": "1"}))["OMP_NUM_THREADS"] == "1"


@pytest.mark.parametrize(("libc", "before", "after"), [
    ("glibc 2.36", "", "glibc.malloc.hugetlb=1"),
    ("glibc 2.35", "glibc.malloc.check=3", "glibc.malloc.check=3:glibc.malloc.hugetlb=1"),
    ("glibc 3.0", "glibc.malloc.hugetlb=0", "glibc.malloc.hugetlb=0"),
    ("glibc 2.34", "", ""),
    ("musl 1.2", "", ""),
    ("", "x=1", "x=1"),
])
def test_the_allocator_is_asked_for_huge_pages_where_it_knows_them_and_nobody_said_otherwise(libc, before, after):
    given = {"GLIBC_TUNABLES": before} if before else {}
    assert with_huge_pages({"A": "b", **given}, libc) == ({"A": "b", "GLIBC_TUNABLES": after} if after else {"A": "b"})


def test_local_traffic_never_goes_through_a_proxy():
    found = chosen({"NO_PROXY": "intranet, localhost", "HTTP_PROXY": "http://proxy"})
    assert found["NO_PROXY"] == found["no_proxy"] == "intranet,localhost,127.0.0.1"
    assert chosen({})["NO_PROXY"] == "localhost,127.0.0.1"


def test_the_hosts_own_venv_leaves_the_path_and_everything_else_on_it_stays():
    found = chosen({"VIRTUAL_ENV": "/v", "PATH": os.pathsep.join(["/v/bin/", "/usr/bin", "/conda/bin"])})
    assert found["PATH"] == os.pathsep.join(["/usr/bin", "/conda/bin"])


def test_an_allocator_setting_that_only_chose_the_backend_vanishes():
    assert "PYTORCH_CUDA_ALLOC_CONF" not in chosen({"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"})


def test_a_notebooks_plot_backend_does_not_reach_a_worker():
    assert "MPLBACKEND" not in chosen({"MPLBACKEND": "module://matplotlib_inline.backend_inline"})


def test_the_running_hosts_environment_is_read_where_none_is_given(monkeypatch):
    monkeypatch.setenv("HSA_OVERRIDE_GFX_VERSION", "11.0.0")
    assert worker_variables(PLAN, nonce="n", host_nonce="h", generation=1)["HSA_OVERRIDE_GFX_VERSION"] == "11.0.0"


@pytest.mark.parametrize(("device", "visible", "wanted"), [
    ("cpu", "0,1", ""), ("cuda", None, "0"), ("cuda:1", None, "1"), ("cuda:1", "2,3", "3"), ("1", "GPU-a,GPU-b", "GPU-b"),
    ("cuda:5", "2,3", ""), ("GPU-1234", "0", "GPU-1234"),
])
def test_a_device_is_counted_as_the_host_counts_it(device, visible, wanted):
    assert visible_device(device, visible) == wanted
    host = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    assert chosen(host, EnvPlan(key="k", device=device))["CUDA_VISIBLE_DEVICES"] == wanted


@pytest.mark.parametrize("sign", ["pyvenv.cfg", "conda-meta"])
def test_the_environments_own_programs_come_first_on_the_path(tmp_path, sign):
    (tmp_path / "bin").mkdir()
    (tmp_path / sign).touch()
    own = str(tmp_path / "bin")
    found = with_tools_of(f"{own}/python", {"PATH": os.pathsep.join(["/usr/bin", own]), "A": "1"})
    assert found == {"PATH": os.pathsep.join([own, "/usr/bin"]), "A": "1"}


def test_a_program_outside_of_any_environment_changes_no_path(tmp_path):
    assert with_tools_of(f"{tmp_path}/bin/python", {"PATH": "/usr/bin"}) == {"PATH": "/usr/bin"}
