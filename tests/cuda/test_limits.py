"""Which devices the CUDA kernels run on: any new enough one, whichever is current."""

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
