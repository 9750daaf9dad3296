"""Where the CUDA kernels run: on any device new enough, with a compiler that the driver can follow."""

import re
import sys
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("cuda.core")

from online_softmax import _cuda  # noqa: E402
from online_softmax._cuda.limits import device_limits  # noqa: E402

CAPABILITIES = [(7, 0), (9, 0)]


@pytest.fixture
def old_and_new(monkeypatch):
    """An old device, which is current, and a new one."""

    def properties(index):
        major, minor = CAPABILITIES[index]
        return SimpleNamespace(name=f"device {index}", major=major, minor=minor, multi_processor_count=132)

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(CAPABILITIES))
    monkeypatch.setattr(torch.cuda, "get_device_properties", properties)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index=0: CAPABILITIES[index])
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index=0: f"device {index}")
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    monkeypatch.setattr(_cuda, "_compiler", lambda: (12, 9))
    monkeypatch.setattr("cuda.bindings.driver.cuDriverGetVersion", lambda: (0, 12080))
    device_limits.cache_clear()
    yield
    device_limits.cache_clear()


def test_an_old_device_beside_a_new_one_is_refused_by_name(old_and_new):
    assert _cuda.availability() is None
    assert device_limits(1).arch == "sm_90"
    with pytest.raises(RuntimeError, match=r"cuda:0, device 0, has compute capability 7\.0.*8\.0 or newer"):
        device_limits(0)


def test_old_devices_alone_are_said_to_be_too_old(old_and_new, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert _cuda.availability() == "device 0 is older than compute capability 8.0"


def test_what_the_device_and_the_compiler_are_is_one_line(old_and_new):
    assert _cuda.describe().startswith("device 0, compute capability 7.0, NVRTC 12.9, kernels kept in ")


def test_a_compiler_newer_than_the_driver_s_cuda_is_refused_with_what_to_install(old_and_new, monkeypatch):
    monkeypatch.setattr(_cuda, "_compiler", lambda: (13, 0))
    wanted = r"the driver is for CUDA 12\.8, NVRTC 13\.0 .*pip install 'online-softmax\[cuda12\]', or a newer driver"
    assert re.fullmatch(wanted, _cuda.availability())


def test_without_the_compiler_s_library_the_extra_of_torch_s_cuda_is_named(old_and_new, monkeypatch):
    def missing():
        raise RuntimeError("libnvrtc.so was not found")

    monkeypatch.setattr(_cuda, "_compiler", missing)
    for version, extra in (("12.8", "cuda12"), ("13.0", "cuda13")):
        monkeypatch.setattr(torch.version, "cuda", version)
        assert _cuda.availability() == (
            f"NVRTC does not load (libnvrtc.so was not found): pip install 'online-softmax[{extra}]'"
        )


def test_without_cuda_core_the_extra_is_named(old_and_new, monkeypatch):
    monkeypatch.setitem(sys.modules, "cuda.core", None)
    assert "pip install 'online-softmax[cuda12]'" in _cuda.availability()
