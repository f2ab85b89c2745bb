"""Printing of tensors: exactly torch 2.13's text."""

import pytest

import engine

inf, nan = float("inf"), float("nan")

# fmt: off
CASES = {
    "zero_dim": [
        (lambda: engine.tensor(1), "tensor(1)"),
        (lambda: engine.tensor(1.0), "tensor(1.)"),
        (lambda: engine.tensor(-1.5), "tensor(-1.5000)"),
        (lambda: engine.tensor(3.14159265), "tensor(3.1416)"),
        (lambda: engine.tensor(True), "tensor(True)"),
        (lambda: engine.tensor(1e10), "tensor(1.0000e+10)"),
        (lambda: engine.tensor(1e-10), "tensor(1.0000e-10)"),
        (lambda: engine.tensor(123456.789), "tensor(123456.7891)"),
        (lambda: engine.tensor(100000.0), "tensor(100000.)"),
        (lambda: engine.tensor(nan), "tensor(nan)"),
        (lambda: engine.tensor(inf), "tensor(inf)"),
        (lambda: engine.tensor(-inf), "tensor(-inf)"),
        (lambda: engine.tensor(0.0), "tensor(0.)"),
        (lambda: engine.tensor(-0.0), "tensor(-0.)"),
        (lambda: engine.tensor(1 + 2j), "tensor(1.+2.j)"),
        (lambda: engine.tensor(2.5, dtype=engine.float64), "tensor(2.5000, dtype=torch.float64)"),
        (lambda: engine.tensor(7, dtype=engine.uint8), "tensor(7, dtype=torch.uint8)"),
        (lambda: engine.tensor(2.5, dtype=engine.float16), "tensor(2.5000, dtype=torch.float16)"),
        (lambda: engine.tensor(2.5, dtype=engine.bfloat16),
         "tensor(2.5000, dtype=torch.bfloat16)"),
        (lambda: engine.tensor(5, dtype=engine.int32), "tensor(5, dtype=torch.int32)"),
        (lambda: engine.tensor(2.5, requires_grad=True), "tensor(2.5000, requires_grad=True)"),
        (lambda: engine.tensor(2.5, requires_grad=True) * 2, "tensor(5., grad_fn=<MulBackward0>)"),
    ],
    "vectors": [
        (lambda: engine.tensor([1.0, 2.0, 3.0]), "tensor([1., 2., 3.])"),
        (lambda: engine.tensor([1, 2, 3]), "tensor([1, 2, 3])"),
        (lambda: engine.tensor([1.5, 2.25, -3.125]), "tensor([ 1.5000,  2.2500, -3.1250])"),
        (lambda: engine.tensor([0.1, 0.2, 0.3]), "tensor([0.1000, 0.2000, 0.3000])"),
        (lambda: engine.tensor([1, -20, 300]), "tensor([  1, -20, 300])"),
        (lambda: engine.tensor([True, False]), "tensor([ True, False])"),
        (lambda: engine.tensor([1.0]), "tensor([1.])"),
        (lambda: engine.tensor([1e-5, 1.0]), "tensor([1.0000e-05, 1.0000e+00])"),
        (lambda: engine.tensor([1e-5, 1e-4]), "tensor([1.0000e-05, 1.0000e-04])"),
        (lambda: engine.tensor([1e-4, 1.0]), "tensor([1.0000e-04, 1.0000e+00])"),
        (lambda: engine.tensor([1.0, 1000.0]), "tensor([   1., 1000.])"),
        (lambda: engine.tensor([1.0, 1001.0]), "tensor([1.0000e+00, 1.0010e+03])"),
        (lambda: engine.tensor([0.5, 1001.0]), "tensor([5.0000e-01, 1.0010e+03])"),
        (lambda: engine.tensor([0.5, 1000.0]), "tensor([5.0000e-01, 1.0000e+03])"),
        (lambda: engine.tensor([0.001, 1.0]), "tensor([0.0010, 1.0000])"),
        (lambda: engine.tensor([0.001, 1.001]), "tensor([1.0000e-03, 1.0010e+00])"),
        (lambda: engine.tensor([0.001, 1.5, 2000.0]),
         "tensor([1.0000e-03, 1.5000e+00, 2.0000e+03])"),
        (lambda: engine.tensor([1e8, 1.0]), "tensor([1.0000e+08, 1.0000e+00])"),
        (lambda: engine.tensor([1.5e8, 1.0]), "tensor([1.5000e+08, 1.0000e+00])"),
        (lambda: engine.tensor([99999999.0]), "tensor([100000000.])"),
        (lambda: engine.tensor([100000000.0]), "tensor([100000000.])"),
        (lambda: engine.tensor([123456789.0]), "tensor([1.2346e+08])"),
        (lambda: engine.tensor([1e8]), "tensor([100000000.])"),
        (lambda: engine.tensor([1e9, 2e9]), "tensor([1.0000e+09, 2.0000e+09])"),
        (lambda: engine.tensor([1e20]), "tensor([1.0000e+20])"),
        (lambda: engine.tensor([12345.678]), "tensor([12345.6777])"),
        (lambda: engine.tensor([99999.0, 0.1]), "tensor([9.9999e+04, 1.0000e-01])"),
        (lambda: engine.tensor([100000.0, 0.1]), "tensor([1.0000e+05, 1.0000e-01])"),
        (lambda: engine.tensor([1e5 + 0.5]), "tensor([100000.5000])"),
        (lambda: engine.tensor([0.00012345]), "tensor([0.0001])"),
        (lambda: engine.tensor([1e-8]), "tensor([1.0000e-08])"),
        (lambda: engine.tensor([0.0, 1e-8]), "tensor([0.0000e+00, 1.0000e-08])"),
        (lambda: engine.tensor([0.0, 0.0]), "tensor([0., 0.])"),
        (lambda: engine.tensor([-0.0, 0.0]), "tensor([-0., 0.])"),
        (lambda: engine.tensor([1e38, 1e-38]), "tensor([1.0000e+38, 1.0000e-38])"),
        (lambda: engine.tensor([1e300, 1e-300], dtype=engine.float64),
         "tensor([1.0000e+300, 1.0000e-300], dtype=torch.float64)"),
        (lambda: engine.tensor([0.1234567890123], dtype=engine.float64),
         "tensor([0.1235], dtype=torch.float64)"),
        (lambda: engine.tensor([-1.0, 1.0, -10.0]), "tensor([ -1.,   1., -10.])"),
        (lambda: engine.tensor([-0.5, 10.25]), "tensor([-0.5000, 10.2500])"),
        (lambda: engine.arange(10), "tensor([0, 1, 2, 3, 4, 5, 6, 7, 8, 9])"),
        (lambda: engine.arange(0, 100000, 10000),
         "tensor([    0, 10000, 20000, 30000, 40000, 50000, 60000, 70000, 80000, 90000])"),
        (lambda: engine.arange(0.0, 1.0, 0.25), "tensor([0.0000, 0.2500, 0.5000, 0.7500])"),
        (lambda: engine.linspace(0, 1, 4), "tensor([0.0000, 0.3333, 0.6667, 1.0000])"),
        (lambda: engine.linspace(-10, 10, 7), """\
tensor([-1.0000e+01, -6.6667e+00, -3.3333e+00,  2.3842e-07,  3.3333e+00,
         6.6667e+00,  1.0000e+01])"""),
        (lambda: engine.tensor([2**31 - 1, -(2**31)]), "tensor([ 2147483647, -2147483648])"),
        (lambda: engine.tensor([2**63 - 1, -(2**63)]),
         "tensor([ 9223372036854775807, -9223372036854775808])"),
    ],
    "nan_and_inf": [
        (lambda: engine.tensor([nan, 1.0]), "tensor([nan, 1.])"),
        (lambda: engine.tensor([nan, nan]), "tensor([nan, nan])"),
        (lambda: engine.tensor([inf, -inf, nan]), "tensor([inf, -inf, nan])"),
        (lambda: engine.tensor([inf, 1.0]), "tensor([inf, 1.])"),
        (lambda: engine.tensor([inf, 1.5, -2.25]), "tensor([    inf,  1.5000, -2.2500])"),
        (lambda: engine.tensor([nan, 1e10]), "tensor([       nan, 1.0000e+10])"),
        (lambda: engine.tensor([nan, 1e-10]), "tensor([       nan, 1.0000e-10])"),
        (lambda: engine.tensor([-inf, 0.0]), "tensor([-inf, 0.])"),
        (lambda: engine.tensor([-inf, 1234.5]), "tensor([     -inf, 1234.5000])"),
        (lambda: engine.tensor([[nan, 1.0], [inf, -100.0]]), """\
tensor([[  nan,    1.],
        [  inf, -100.]])"""),
        (lambda: engine.tensor([nan, 1.0], dtype=engine.float64),
         "tensor([nan, 1.], dtype=torch.float64)"),
    ],
    "dtypes": [
        (lambda: engine.tensor([1, 2], dtype=engine.uint8), "tensor([1, 2], dtype=torch.uint8)"),
        (lambda: engine.tensor([1, -2], dtype=engine.int8), "tensor([ 1, -2], dtype=torch.int8)"),
        (lambda: engine.tensor([1, -2], dtype=engine.int16),
         "tensor([ 1, -2], dtype=torch.int16)"),
        (lambda: engine.tensor([1, -2], dtype=engine.int32),
         "tensor([ 1, -2], dtype=torch.int32)"),
        (lambda: engine.tensor([1, -2], dtype=engine.int64), "tensor([ 1, -2])"),
        (lambda: engine.tensor([1.0, -2.0], dtype=engine.float16),
         "tensor([ 1., -2.], dtype=torch.float16)"),
        (lambda: engine.tensor([1.0, -2.5], dtype=engine.bfloat16),
         "tensor([ 1.0000, -2.5000], dtype=torch.bfloat16)"),
        (lambda: engine.tensor([1.0, -2.5], dtype=engine.float32), "tensor([ 1.0000, -2.5000])"),
        (lambda: engine.tensor([1.0, -2.5], dtype=engine.float64),
         "tensor([ 1.0000, -2.5000], dtype=torch.float64)"),
        (lambda: engine.tensor([0.1, 1000.5], dtype=engine.float16),
         "tensor([9.9976e-02, 1.0005e+03], dtype=torch.float16)"),
        (lambda: engine.tensor([0.1, 3.0], dtype=engine.bfloat16),
         "tensor([0.1001, 3.0000], dtype=torch.bfloat16)"),
        (lambda: engine.tensor([65504.0], dtype=engine.float16),
         "tensor([65504.], dtype=torch.float16)"),
        (lambda: engine.tensor([1e-7], dtype=engine.float16),
         "tensor([1.1921e-07], dtype=torch.float16)"),
        (lambda: engine.tensor([True, False, True]), "tensor([ True, False,  True])"),
        (lambda: engine.tensor([[True], [False]]), """\
tensor([[ True],
        [False]])"""),
        (lambda: engine.tensor([1, 0], dtype=engine.bool), "tensor([ True, False])"),
        (lambda: engine.tensor([1, 2], dtype=engine.uint16), "tensor([1, 2], dtype=torch.uint16)"),
        (lambda: engine.tensor([1, 2], dtype=engine.uint32), "tensor([1, 2], dtype=torch.uint32)"),
        (lambda: engine.tensor([1, 2], dtype=engine.uint64), "tensor([1, 2], dtype=torch.uint64)"),
        (lambda: engine.tensor([1 + 2j, 3.5 - 4j]), "tensor([1.0000+2.j, 3.5000-4.j])"),
        (lambda: engine.tensor([1 + 2j], dtype=engine.complex128),
         "tensor([1.+2.j], dtype=torch.complex128)"),
        (lambda: engine.tensor([1j, 2.0]), "tensor([0.+1.j, 2.+0.j])"),
        (lambda: engine.tensor([0.5 + 1e-6j]), "tensor([0.5000+1.0000e-06j])"),
        (lambda: engine.tensor([1e10 + 1j, 2]), "tensor([1.0000e+10+1.j, 2.0000e+00+0.j])"),
        (lambda: engine.tensor([complex(nan, inf)]), "tensor([nan+infj])"),
        (lambda: engine.tensor([[1 + 1j, 2 + 2j], [3, 4j]]), """\
tensor([[1.+1.j, 2.+2.j],
        [3.+0.j, 0.+4.j]])"""),
        (lambda: engine.tensor([1.25 + 3j, -10 - 0.5j]),
         "tensor([  1.2500+3.0000j, -10.0000-0.5000j])"),
    ],
    "empty": [
        (lambda: engine.tensor([]), "tensor([])"),
        (lambda: engine.empty(0), "tensor([])"),
        (lambda: engine.empty(0, 3), "tensor([], size=(0, 3))"),
        (lambda: engine.empty(2, 0), "tensor([], size=(2, 0))"),
        (lambda: engine.empty(2, 0, 4), "tensor([], size=(2, 0, 4))"),
        (lambda: engine.empty(0, dtype=engine.int64), "tensor([], dtype=torch.int64)"),
        (lambda: engine.empty(0, dtype=engine.bool), "tensor([], dtype=torch.bool)"),
        (lambda: engine.empty(0, 2, dtype=engine.float64),
         "tensor([], size=(0, 2), dtype=torch.float64)"),
        (lambda: engine.empty(3, 0, dtype=engine.int32),
         "tensor([], size=(3, 0), dtype=torch.int32)"),
        (lambda: engine.empty(0, requires_grad=True), "tensor([], requires_grad=True)"),
        (lambda: engine.empty(0, 2, requires_grad=True),
         "tensor([], size=(0, 2), requires_grad=True)"),
        (lambda: engine.tensor([[]]), "tensor([], size=(1, 0))"),
        (lambda: engine.tensor([], dtype=engine.complex64), "tensor([], dtype=torch.complex64)"),
    ],
    "shapes": [
        (lambda: engine.zeros(2, 3), """\
tensor([[0., 0., 0.],
        [0., 0., 0.]])"""),
        (lambda: engine.ones(3, 1), """\
tensor([[1.],
        [1.],
        [1.]])"""),
        (lambda: engine.ones(1, 3), "tensor([[1., 1., 1.]])"),
        (lambda: engine.eye(3), """\
tensor([[1., 0., 0.],
        [0., 1., 0.],
        [0., 0., 1.]])"""),
        (lambda: engine.arange(6).view(2, 3), """\
tensor([[0, 1, 2],
        [3, 4, 5]])"""),
        (lambda: engine.arange(24).view(2, 3, 4), """\
tensor([[[ 0,  1,  2,  3],
         [ 4,  5,  6,  7],
         [ 8,  9, 10, 11]],

        [[12, 13, 14, 15],
         [16, 17, 18, 19],
         [20, 21, 22, 23]]])"""),
        (lambda: engine.arange(8.0).view(2, 2, 2), """\
tensor([[[0., 1.],
         [2., 3.]],

        [[4., 5.],
         [6., 7.]]])"""),
        (lambda: engine.arange(16).view(2, 2, 2, 2), """\
tensor([[[[ 0,  1],
          [ 2,  3]],

         [[ 4,  5],
          [ 6,  7]]],


        [[[ 8,  9],
          [10, 11]],

         [[12, 13],
          [14, 15]]]])"""),
        (lambda: engine.zeros(1, 1, 1, 1), "tensor([[[[0.]]]])"),
        (lambda: engine.zeros(2, 1, 2), """\
tensor([[[0., 0.]],

        [[0., 0.]]])"""),
        (lambda: engine.arange(6).view(2, 3).t(), """\
tensor([[0, 3],
        [1, 4],
        [2, 5]])"""),
        (lambda: engine.arange(12.0).view(3, 4)[::2, 1::2], """\
tensor([[ 1.,  3.],
        [ 9., 11.]])"""),
        (lambda: engine.ones(1).expand(2, 3), """\
tensor([[1., 1., 1.],
        [1., 1., 1.]])"""),
        (lambda: engine.tensor([[1.0, 2.5], [1000.25, 3.0]]), """\
tensor([[1.0000e+00, 2.5000e+00],
        [1.0002e+03, 3.0000e+00]])"""),
        (lambda: engine.tensor([[1e-3, 1e3], [1.0, 2.0]]), """\
tensor([[1.0000e-03, 1.0000e+03],
        [1.0000e+00, 2.0000e+00]])"""),
        (lambda: engine.tensor([[1, -100], [20, 3]]), """\
tensor([[   1, -100],
        [  20,    3]])"""),
        (lambda: engine.arange(30), """\
tensor([ 0,  1,  2,  3,  4,  5,  6,  7,  8,  9, 10, 11, 12, 13, 14, 15, 16, 17,
        18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29])"""),
        (lambda: engine.arange(40.0), """\
tensor([ 0.,  1.,  2.,  3.,  4.,  5.,  6.,  7.,  8.,  9., 10., 11., 12., 13.,
        14., 15., 16., 17., 18., 19., 20., 21., 22., 23., 24., 25., 26., 27.,
        28., 29., 30., 31., 32., 33., 34., 35., 36., 37., 38., 39.])"""),
        (lambda: engine.arange(50.0) / 7, """\
tensor([0.0000, 0.1429, 0.2857, 0.4286, 0.5714, 0.7143, 0.8571, 1.0000, 1.1429,
        1.2857, 1.4286, 1.5714, 1.7143, 1.8571, 2.0000, 2.1429, 2.2857, 2.4286,
        2.5714, 2.7143, 2.8571, 3.0000, 3.1429, 3.2857, 3.4286, 3.5714, 3.7143,
        3.8571, 4.0000, 4.1429, 4.2857, 4.4286, 4.5714, 4.7143, 4.8571, 5.0000,
        5.1429, 5.2857, 5.4286, 5.5714, 5.7143, 5.8571, 6.0000, 6.1429, 6.2857,
        6.4286, 6.5714, 6.7143, 6.8571, 7.0000])"""),
        (lambda: engine.arange(60).view(2, 30), """\
tensor([[ 0,  1,  2,  3,  4,  5,  6,  7,  8,  9, 10, 11, 12, 13, 14, 15, 16, 17,
         18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29],
        [30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47,
         48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59]])"""),
        (lambda: engine.ones(2, 30), """\
tensor([[1., 1., 1., 1., 1., 1., 1., 1., 1., 1., 1., 1., 1., 1., 1., 1., 1., 1.,
         1., 1., 1., 1., 1., 1., 1., 1., 1., 1., 1., 1.],
        [1., 1., 1., 1., 1., 1., 1., 1., 1., 1., 1., 1., 1., 1., 1., 1., 1., 1.,
         1., 1., 1., 1., 1., 1., 1., 1., 1., 1., 1., 1.]])"""),
        (lambda: engine.arange(100.0).view(2, 50) * 0.01, """\
tensor([[0.0000, 0.0100, 0.0200, 0.0300, 0.0400, 0.0500, 0.0600, 0.0700, 0.0800,
         0.0900, 0.1000, 0.1100, 0.1200, 0.1300, 0.1400, 0.1500, 0.1600, 0.1700,
         0.1800, 0.1900, 0.2000, 0.2100, 0.2200, 0.2300, 0.2400, 0.2500, 0.2600,
         0.2700, 0.2800, 0.2900, 0.3000, 0.3100, 0.3200, 0.3300, 0.3400, 0.3500,
         0.3600, 0.3700, 0.3800, 0.3900, 0.4000, 0.4100, 0.4200, 0.4300, 0.4400,
         0.4500, 0.4600, 0.4700, 0.4800, 0.4900],
        [0.5000, 0.5100, 0.5200, 0.5300, 0.5400, 0.5500, 0.5600, 0.5700, 0.5800,
         0.5900, 0.6000, 0.6100, 0.6200, 0.6300, 0.6400, 0.6500, 0.6600, 0.6700,
         0.6800, 0.6900, 0.7000, 0.7100, 0.7200, 0.7300, 0.7400, 0.7500, 0.7600,
         0.7700, 0.7800, 0.7900, 0.8000, 0.8100, 0.8200, 0.8300, 0.8400, 0.8500,
         0.8600, 0.8700, 0.8800, 0.8900, 0.9000, 0.9100, 0.9200, 0.9300, 0.9400,
         0.9500, 0.9600, 0.9700, 0.9800, 0.9900]])"""),
        (lambda: engine.zeros(40, dtype=engine.bool), """\
tensor([False, False, False, False, False, False, False, False, False, False,
        False, False, False, False, False, False, False, False, False, False,
        False, False, False, False, False, False, False, False, False, False,
        False, False, False, False, False, False, False, False, False, False])"""),
        (lambda: engine.arange(25) * 1000000, """\
tensor([       0,  1000000,  2000000,  3000000,  4000000,  5000000,  6000000,
         7000000,  8000000,  9000000, 10000000, 11000000, 12000000, 13000000,
        14000000, 15000000, 16000000, 17000000, 18000000, 19000000, 20000000,
        21000000, 22000000, 23000000, 24000000])"""),
        (lambda: engine.full((20,), 1e-6), """\
tensor([1.0000e-06, 1.0000e-06, 1.0000e-06, 1.0000e-06, 1.0000e-06, 1.0000e-06,
        1.0000e-06, 1.0000e-06, 1.0000e-06, 1.0000e-06, 1.0000e-06, 1.0000e-06,
        1.0000e-06, 1.0000e-06, 1.0000e-06, 1.0000e-06, 1.0000e-06, 1.0000e-06,
        1.0000e-06, 1.0000e-06])"""),
    ],
    "summarised": [
        (lambda: engine.arange(1001), "tensor([   0,    1,    2,  ...,  998,  999, 1000])"),
        (lambda: engine.arange(1000)[:30], """\
tensor([ 0,  1,  2,  3,  4,  5,  6,  7,  8,  9, 10, 11, 12, 13, 14, 15, 16, 17,
        18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29])"""),
        (lambda: engine.zeros(2000), "tensor([0., 0., 0.,  ..., 0., 0., 0.])"),
        (lambda: engine.arange(1200.0), """\
tensor([0.0000e+00, 1.0000e+00, 2.0000e+00,  ..., 1.1970e+03, 1.1980e+03,
        1.1990e+03])"""),
        (lambda: engine.arange(10000).view(100, 100), """\
tensor([[   0,    1,    2,  ...,   97,   98,   99],
        [ 100,  101,  102,  ...,  197,  198,  199],
        [ 200,  201,  202,  ...,  297,  298,  299],
        ...,
        [9700, 9701, 9702,  ..., 9797, 9798, 9799],
        [9800, 9801, 9802,  ..., 9897, 9898, 9899],
        [9900, 9901, 9902,  ..., 9997, 9998, 9999]])"""),
        (lambda: engine.zeros(5, 1001), """\
tensor([[0., 0., 0.,  ..., 0., 0., 0.],
        [0., 0., 0.,  ..., 0., 0., 0.],
        [0., 0., 0.,  ..., 0., 0., 0.],
        [0., 0., 0.,  ..., 0., 0., 0.],
        [0., 0., 0.,  ..., 0., 0., 0.]])"""),
        (lambda: engine.zeros(1001, 2), """\
tensor([[0., 0.],
        [0., 0.],
        [0., 0.],
        ...,
        [0., 0.],
        [0., 0.],
        [0., 0.]])"""),
        (lambda: engine.zeros(1001, 7), """\
tensor([[0., 0., 0.,  ..., 0., 0., 0.],
        [0., 0., 0.,  ..., 0., 0., 0.],
        [0., 0., 0.,  ..., 0., 0., 0.],
        ...,
        [0., 0., 0.,  ..., 0., 0., 0.],
        [0., 0., 0.,  ..., 0., 0., 0.],
        [0., 0., 0.,  ..., 0., 0., 0.]])"""),
        (lambda: engine.arange(2000).view(10, 20, 10), """\
tensor([[[   0,    1,    2,  ...,    7,    8,    9],
         [  10,   11,   12,  ...,   17,   18,   19],
         [  20,   21,   22,  ...,   27,   28,   29],
         ...,
         [ 170,  171,  172,  ...,  177,  178,  179],
         [ 180,  181,  182,  ...,  187,  188,  189],
         [ 190,  191,  192,  ...,  197,  198,  199]],

        [[ 200,  201,  202,  ...,  207,  208,  209],
         [ 210,  211,  212,  ...,  217,  218,  219],
         [ 220,  221,  222,  ...,  227,  228,  229],
         ...,
         [ 370,  371,  372,  ...,  377,  378,  379],
         [ 380,  381,  382,  ...,  387,  388,  389],
         [ 390,  391,  392,  ...,  397,  398,  399]],

        [[ 400,  401,  402,  ...,  407,  408,  409],
         [ 410,  411,  412,  ...,  417,  418,  419],
         [ 420,  421,  422,  ...,  427,  428,  429],
         ...,
         [ 570,  571,  572,  ...,  577,  578,  579],
         [ 580,  581,  582,  ...,  587,  588,  589],
         [ 590,  591,  592,  ...,  597,  598,  599]],

        ...,

        [[1400, 1401, 1402,  ..., 1407, 1408, 1409],
         [1410, 1411, 1412,  ..., 1417, 1418, 1419],
         [1420, 1421, 1422,  ..., 1427, 1428, 1429],
         ...,
         [1570, 1571, 1572,  ..., 1577, 1578, 1579],
         [1580, 1581, 1582,  ..., 1587, 1588, 1589],
         [1590, 1591, 1592,  ..., 1597, 1598, 1599]],

        [[1600, 1601, 1602,  ..., 1607, 1608, 1609],
         [1610, 1611, 1612,  ..., 1617, 1618, 1619],
         [1620, 1621, 1622,  ..., 1627, 1628, 1629],
         ...,
         [1770, 1771, 1772,  ..., 1777, 1778, 1779],
         [1780, 1781, 1782,  ..., 1787, 1788, 1789],
         [1790, 1791, 1792,  ..., 1797, 1798, 1799]],

        [[1800, 1801, 1802,  ..., 1807, 1808, 1809],
         [1810, 1811, 1812,  ..., 1817, 1818, 1819],
         [1820, 1821, 1822,  ..., 1827, 1828, 1829],
         ...,
         [1970, 1971, 1972,  ..., 1977, 1978, 1979],
         [1980, 1981, 1982,  ..., 1987, 1988, 1989],
         [1990, 1991, 1992,  ..., 1997, 1998, 1999]]])"""),
        (lambda: engine.zeros(4, 4, 100), """\
tensor([[[0., 0., 0.,  ..., 0., 0., 0.],
         [0., 0., 0.,  ..., 0., 0., 0.],
         [0., 0., 0.,  ..., 0., 0., 0.],
         [0., 0., 0.,  ..., 0., 0., 0.]],

        [[0., 0., 0.,  ..., 0., 0., 0.],
         [0., 0., 0.,  ..., 0., 0., 0.],
         [0., 0., 0.,  ..., 0., 0., 0.],
         [0., 0., 0.,  ..., 0., 0., 0.]],

        [[0., 0., 0.,  ..., 0., 0., 0.],
         [0., 0., 0.,  ..., 0., 0., 0.],
         [0., 0., 0.,  ..., 0., 0., 0.],
         [0., 0., 0.,  ..., 0., 0., 0.]],

        [[0., 0., 0.,  ..., 0., 0., 0.],
         [0., 0., 0.,  ..., 0., 0., 0.],
         [0., 0., 0.,  ..., 0., 0., 0.],
         [0., 0., 0.,  ..., 0., 0., 0.]]])"""),
        (lambda: engine.arange(2000.0) * 1e6, """\
tensor([0.0000e+00, 1.0000e+06, 2.0000e+06,  ..., 1.9970e+09, 1.9980e+09,
        1.9990e+09])"""),
        (lambda: engine.arange(2000.0) / 3, """\
tensor([0.0000e+00, 3.3333e-01, 6.6667e-01,  ..., 6.6567e+02, 6.6600e+02,
        6.6633e+02])"""),
        (lambda: engine.zeros(2000, requires_grad=True),
         "tensor([0., 0., 0.,  ..., 0., 0., 0.], requires_grad=True)"),
        (lambda: engine.zeros(2000, dtype=engine.float64),
         "tensor([0., 0., 0.,  ..., 0., 0., 0.], dtype=torch.float64)"),
        (lambda: engine.zeros(1500, dtype=engine.bool),
         "tensor([False, False, False,  ..., False, False, False])"),
        (lambda: engine.arange(1001) + 1j,
         "tensor([   0.+1.j,    1.+1.j,    2.+1.j,  ...,  998.+1.j,  999.+1.j, 1000.+1.j])"),
        (lambda: engine.zeros(3, 0, 2000), "tensor([], size=(3, 0, 2000))"),
    ],
    "suffixes": [
        (lambda: engine.ones(2, requires_grad=True), "tensor([1., 1.], requires_grad=True)"),
        (lambda: engine.ones(2, dtype=engine.float64, requires_grad=True),
         "tensor([1., 1.], dtype=torch.float64, requires_grad=True)"),
        (lambda: engine.ones(2, 2, requires_grad=True), """\
tensor([[1., 1.],
        [1., 1.]], requires_grad=True)"""),
        (lambda: engine.ones(2, requires_grad=True) * 2,
         "tensor([2., 2.], grad_fn=<MulBackward0>)"),
        (lambda: engine.ones(2, requires_grad=True) + 1,
         "tensor([2., 2.], grad_fn=<AddBackward0>)"),
        (lambda: engine.ones(2, requires_grad=True).sum(), "tensor(2., grad_fn=<SumBackward0>)"),
        (lambda: engine.ones(2, requires_grad=True).exp(),
         "tensor([2.7183, 2.7183], grad_fn=<ExpBackward0>)"),
        (lambda: engine.ones(2, 2, requires_grad=True).mm(engine.ones(2, 2)), """\
tensor([[2., 2.],
        [2., 2.]], grad_fn=<MmBackward0>)"""),
        (lambda: engine.ones(2, 2, requires_grad=True).t(), """\
tensor([[1., 1.],
        [1., 1.]], grad_fn=<TBackward0>)"""),
        (lambda: engine.ones(2, 2, requires_grad=True).view(4),
         "tensor([1., 1., 1., 1.], grad_fn=<ViewBackward0>)"),
        (lambda: engine.ones(2, 2, requires_grad=True)[0],
         "tensor([1., 1.], grad_fn=<SelectBackward0>)"),
        (lambda: engine.ones(2, dtype=engine.float64, requires_grad=True) * 2,
         "tensor([2., 2.], dtype=torch.float64, grad_fn=<MulBackward0>)"),
        (lambda: engine.ones(3, 3, requires_grad=True).double(), """\
tensor([[1., 1., 1.],
        [1., 1., 1.],
        [1., 1., 1.]], dtype=torch.float64, grad_fn=<ToCopyBackward0>)"""),
        (lambda: engine.ones(2, requires_grad=True).detach(), "tensor([1., 1.])"),
        (lambda: engine.ones(2, requires_grad=True).data, "tensor([1., 1.])"),
        (lambda: engine.ones(2, requires_grad=True) > 0, "tensor([True, True])"),
        (lambda: engine.relu(engine.ones(2, requires_grad=True)),
         "tensor([1., 1.], grad_fn=<ReluBackward0>)"),
        (lambda: engine.ones(2, requires_grad=True).clone().mul_(3),
         "tensor([3., 3.], grad_fn=<MulBackward0>)"),
        (lambda: engine.arange(24.0).view(2, 12).requires_grad_(), """\
tensor([[ 0.,  1.,  2.,  3.,  4.,  5.,  6.,  7.,  8.,  9., 10., 11.],
        [12., 13., 14., 15., 16., 17., 18., 19., 20., 21., 22., 23.]],
       requires_grad=True)"""),
        (lambda: (engine.arange(18.0, dtype=engine.float64) * 1.001).requires_grad_() * 1.0, """\
tensor([ 0.0000,  1.0010,  2.0020,  3.0030,  4.0040,  5.0050,  6.0060,  7.0070,
         8.0080,  9.0090, 10.0100, 11.0110, 12.0120, 13.0130, 14.0140, 15.0150,
        16.0160, 17.0170], dtype=torch.float64, grad_fn=<MulBackward0>)"""),
        (lambda: engine.nn.Parameter(engine.ones(2)), """\
Parameter containing:
tensor([1., 1.], requires_grad=True)"""),
        (lambda: engine.nn.Parameter(engine.ones(2, 2), requires_grad=False), """\
Parameter containing:
tensor([[1., 1.],
        [1., 1.]])"""),
        (lambda: engine.nn.Parameter(engine.ones(2), requires_grad=False) + 0, "tensor([1., 1.])"),
        (lambda: [engine.ones(1), engine.zeros(1)], "[tensor([1.]), tensor([0.])]"),
        (lambda: {"a": engine.ones(1)}, "{'a': tensor([1.])}"),
        (lambda: (engine.tensor(1), 2), "(tensor(1), 2)"),
        (lambda: engine.ones(2).requires_grad_().softmax(0),
         "tensor([0.5000, 0.5000], grad_fn=<SoftmaxBackward0>)"),
        (lambda: engine.ones(2, 2, requires_grad=True).max(0), """\
torch.return_types.max(
values=tensor([1., 1.], grad_fn=<MaxBackward0>),
indices=tensor([0, 0]))"""),
        (lambda: engine.ones(2, 2).max(0), """\
torch.return_types.max(
values=tensor([1., 1.]),
indices=tensor([0, 0]))"""),
        (lambda: engine.tensor([[3, 1], [2, 4]]).sort(), """\
torch.return_types.sort(
values=tensor([[1, 3],
        [2, 4]]),
indices=tensor([[1, 0],
        [0, 1]]))"""),
        (lambda: engine.ones(1, 2).shape, "torch.Size([1, 2])"),
        (lambda: engine.ones(()).shape, "torch.Size([])"),
        (lambda: engine.ones(2).size(), "torch.Size([2])"),
        (lambda: engine.ones(2).dtype, "torch.float32"),
        (lambda: engine.ones(2).device, "device(type='cpu')"),
        (lambda: engine.ones(2).layout, "torch.strided"),
    ],
}

OPTIONS = [
    (dict(precision=2), lambda: engine.tensor([1.23456, 2.0]), "tensor([1.23, 2.00])"),
    (dict(precision=8), lambda: engine.tensor([1.23456789], dtype=engine.float64),
     "tensor([1.23456789], dtype=torch.float64)"),
    (dict(threshold=5), lambda: engine.arange(8), "tensor([0, 1, 2,  ..., 5, 6, 7])"),
    (dict(threshold=5, edgeitems=1), lambda: engine.arange(8), "tensor([0,  ..., 7])"),
    (dict(threshold=5, edgeitems=2), lambda: engine.arange(36).view(6, 6), """\
tensor([[ 0,  1,  ...,  4,  5],
        [ 6,  7,  ..., 10, 11],
        ...,
        [24, 25,  ..., 28, 29],
        [30, 31,  ..., 34, 35]])"""),
    (dict(edgeitems=5), lambda: engine.arange(2000),
     "tensor([   0,    1,    2,    3,    4,  ..., 1995, 1996, 1997, 1998, 1999])"),
    (dict(linewidth=40), lambda: engine.arange(20), """\
tensor([ 0,  1,  2,  3,  4,  5,  6,  7,
         8,  9, 10, 11, 12, 13, 14, 15,
        16, 17, 18, 19])"""),
    (dict(linewidth=120), lambda: engine.arange(40),
     """\
tensor([ 0,  1,  2,  3,  4,  5,  6,  7,  8,  9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27,
        28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39])"""),
    (dict(sci_mode=True), lambda: engine.tensor([1.0, 2.5]), "tensor([1.0000e+00, 2.5000e+00])"),
    (dict(sci_mode=True), lambda: engine.tensor([1, 2]), "tensor([1, 2])"),
    (dict(sci_mode=False), lambda: engine.tensor([1e-10, 1e10]),
     "tensor([          0.0000, 10000000000.0000])"),
    (dict(sci_mode=False), lambda: engine.tensor([1e-5, 1.0]), "tensor([0.0000, 1.0000])"),
    (dict(profile="full"), lambda: engine.arange(1001)[:5], "tensor([0, 1, 2, 3, 4])"),
    (dict(profile="short"), lambda: engine.tensor([1.23456]), "tensor([1.23])"),
    (dict(profile="short"), lambda: engine.arange(1100), "tensor([   0,    1,  ..., 1098, 1099])"),
    (dict(precision=2, sci_mode=True), lambda: engine.tensor([12345.678]), "tensor([1.23e+04])"),
]

FORMATS = [
    ("{}", lambda: engine.tensor(1.5), "1.5"),
    ("{:.2f}", lambda: engine.tensor(1.23456), "1.23"),
    ("{:.3e}", lambda: engine.tensor(12345.0), "1.234e+04"),
    ("{:5d}", lambda: engine.tensor(42), "   42"),
    ("{}", lambda: engine.tensor([1.0, 2.0]), "tensor([1., 2.])"),
    ("{!r}", lambda: engine.tensor(3), "tensor(3)"),
    ("{:>8}", lambda: engine.tensor(2.5), "     2.5"),
    ("{}", lambda: engine.tensor(1.5, requires_grad=True), "1.5"),
    ("{}", lambda: engine.tensor(True), "True"),
    ("{:.1f}", lambda: engine.tensor(2.25, dtype=engine.float64), "2.2"),
    ("{}", lambda: engine.tensor(1 + 2j), "(1+2j)"),
    ("{:.4f}", lambda: engine.ones(3).mean(), "1.0000"),
    ("%.2f", lambda: engine.tensor(1.239), "1.24"),
    ("%d", lambda: engine.tensor(7), "7"),
    ("%s", lambda: engine.tensor([1]), "tensor([1])"),
]
# fmt: on


@pytest.mark.parametrize("section, index", [(name, i) for name, cases in CASES.items() for i in range(len(cases))])
def test_repr(section, index):
    """repr gives torch's text."""
    make, expected = CASES[section][index]
    assert repr(make()) == expected


@pytest.mark.parametrize("index", range(len(OPTIONS)))
def test_set_printoptions(index):
    """Each printing option does what it does in torch, and `profile="default"` undoes it."""
    options, make, expected = OPTIONS[index]
    t = make()
    before = repr(t)
    try:
        engine.set_printoptions(**options)
        assert repr(t) == expected
    finally:
        engine.set_printoptions(profile="default", sci_mode=None)
    assert repr(t) == before


@pytest.mark.parametrize("index", range(len(FORMATS)))
def test_format(index):
    """0-dim tensors format as numbers, others as their text."""
    pattern, make, expected = FORMATS[index]
    text = pattern.format(make()) if "{" in pattern else pattern % make()
    assert text == expected


def test_format_of_several_elements():
    """A format specification needs a 0-dim tensor."""
    with pytest.raises(TypeError, match="unsupported format string"):
        format(engine.ones(2), ".2f")


def test_str_is_repr():
    """str and repr agree, and printing records nothing."""
    for t in (engine.ones(2, 2), engine.tensor(1.5), engine.ones(2, requires_grad=True) * 2):
        assert str(t) == repr(t) == f"{t!s}"
    x = engine.ones(2, requires_grad=True)
    repr(x)
    assert x._version == 0 and x.grad_fn is None


def test_default_dtype_decides_the_suffix():
    """The dtype is left out for the default floating type, int64, bool and the default complex type."""
    try:
        engine.set_default_dtype(engine.float64)
        assert repr(engine.tensor([1.5])) == "tensor([1.5000])"
        assert repr(engine.ones(1, dtype=engine.float32)) == "tensor([1.], dtype=torch.float32)"
        assert repr(engine.tensor([1j])) == "tensor([0.+1.j])"
        assert repr(engine.tensor([1])) == "tensor([1])"
    finally:
        engine.set_default_dtype(engine.float32)
