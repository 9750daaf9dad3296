"""warm_up refuses what does not fit before it looks for a device, and says what is missing where it cannot run."""

import pytest

torch = pytest.importorskip("torch")

import online_softmax as osm  # noqa: E402


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"lengths": [100, 0]}, ValueError, r"lengths\[1\] is 0; wanted a positive int"),
        ({"lengths": [True]}, TypeError, r"lengths\[0\] is True; wanted a positive int"),
        ({"weight": 1}, TypeError, "weight is 1; wanted True or False"),
        ({"return_aux": "no"}, TypeError, "return_aux is 'no'; wanted True or False"),
        ({"lengths": [-5]}, ValueError, r"lengths\[0\] is -5; wanted a positive int"),
        ({"lengths": [1.5]}, TypeError, r"lengths\[0\] is 1\.5; wanted a positive int"),
        ({"lengths": 100}, TypeError, "lengths is 100; wanted a list of positive ints"),
        (
            {"operations": ["softmax", "relu"]},
            ValueError,
            "operations holds 'relu'; wanted any of softmax",
        ),
        ({"operations": "softmax"}, TypeError, "operations is 'softmax'; wanted a list"),
        ({"dtypes": [torch.int64]}, TypeError, r"dtypes holds torch\.int64; wanted any of torch\.float16"),
        ({"dtypes": ["float32"]}, TypeError, "dtypes holds 'float32'"),
        ({"dtypes": torch.float32}, TypeError, r"dtypes is torch\.float32; wanted a list"),
        ({"target_dtype": torch.int8}, TypeError, r"target_dtype is torch\.int8"),
        ({"label_smoothing": 2.0}, ValueError, "label_smoothing is 2.0"),
        ({"softcap": -1.0}, ValueError, "softcap is -1.0"),
        ({"z_loss": "much"}, TypeError, "z_loss is 'much'"),
        ({"partials": [0]}, ValueError, r"partials\[0\] is 0; wanted a positive int"),
        ({"device": "cpu"}, ValueError, "device is 'cpu'; wanted a CUDA device"),
        ({"device": "gpu"}, ValueError, "device is 'gpu'; wanted a CUDA device"),
    ],
)
def test_what_does_not_fit_is_named(arguments, error, message):
    with pytest.raises(error, match=message):
        osm.warm_up(**{"lengths": [100], **arguments})


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
@pytest.mark.parametrize("device", ["cuda", "cuda:1", 0])
def test_without_a_cuda_device_it_says_so(device):
    with pytest.raises(RuntimeError, match=r"warm_up cannot run here: .*(no CUDA device|without CUDA)"):
        osm.warm_up([100], device=device)


def test_without_torch_it_says_what_to_install(monkeypatch):
    def nothing(name):
        return None

    monkeypatch.setattr("online_softmax._cuda.find_spec", nothing)
    monkeypatch.setattr("online_softmax._cuda.warm.find_spec", nothing)
    with pytest.raises(RuntimeError, match=r"PyTorch is not installed: pip install 'online-softmax\[torch\]'"):
        osm.warm_up([100])
