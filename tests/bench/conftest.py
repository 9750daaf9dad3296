"""Records as a run of the benchmark writes them, with figures easy to check by hand."""

import pytest


def machine(device):
    return {
        "record": "machine",
        "device": device,
        "quick": False,
        "date": "2026-01-02",
        "online-softmax": "1.2.3",
        "commit": "abc",
        "implementations": {device: {"available": True, "detail": "kernels of a kind"}},
        "machine": {"processor": "a processor", "cores available": 2, "huge pages": "madvise", "GPU": "a GPU"},
        "peers": {"torch": "9.9"},
    }


def workload(operation, rows, columns, seconds, **fields):
    record = {
        "record": "workload",
        "operation": operation,
        "rows": rows,
        "columns": columns,
        "dtype": "float32",
        "variant": "",
        "way": "cold",
        "traffic": 2,
        "seconds": seconds,
        "yardsticks": {"copy": 0.01},
        "memory": {},
        "error": {},
        "wrong": [],
        "refused": {},
    }
    return record | fields


@pytest.fixture
def cpu_records():
    return [
        machine("cpu"),
        workload(
            "logsumexp",
            2048,
            32000,
            {"online-softmax": 0.011, "torch": 0.132, "online-softmax (NumPy)": 0.01, "SciPy": 0.3},
            traffic=1,
            yardsticks={"copy": 0.02, "maximum": 0.008},
        ),
    ]


@pytest.fixture
def cuda_records():
    times = {"online-softmax": 0.01, "torch": 0.04, "quack": 0.02, "torch .float()": 0.12}
    return [
        machine("cuda"),
        workload("softmax", 65536, 4096, {"online-softmax": 0.0125, "torch": 0.02}),
        workload(
            "cross_entropy",
            8192,
            32768,
            times,
            dtype="bfloat16",
            memory={"online-softmax": 2**29, "torch": 3 * 2**29},
            refused={"Liger": "RuntimeError: no"},
        ),
        workload("cross_entropy", 8, 128, {"online-softmax": 2e-4, "torch": 1e-4}, way="call", yardsticks={}),
    ]
