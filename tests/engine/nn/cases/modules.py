"""Cases of modules; see `cases/__init__.py`."""

import numpy as np


def cases(T, nn, F, r):
    def fill(m):
        rr = np.random.RandomState(3)
        m.double()
        with T.no_grad():
            for n, p in list(m.named_parameters()) + [
                (n, b) for n, b in m.named_buffers() if b.dtype.is_floating_point
            ]:
                v = rr.randn(*tuple(p.shape)) * 0.3
                if "running_var" in n:
                    v = np.abs(v) + 0.5
                p.copy_(r.arr(np.asarray(v), False))
        return m

    def leaves(v):
        if isinstance(v, T.Tensor):
            return [v]
        return [t for q in v for t in leaves(q)] if isinstance(v, (list, tuple)) else []

    def mod(ctor, *inp, ev=False, **kw):
        def f():
            m = fill(ctor())
            if ev:
                m.eval()
            flat = leaves(m(*inp, **kw))
            ps = [p for p in m.parameters()] + [i for i in inp if isinstance(i, T.Tensor) and i.requires_grad]
            rr = np.random.RandomState(1)
            outs = [q for q in flat if q.requires_grad]
            g = []
            if outs and ps:
                tot = sum((q * r.arr(np.asarray(rr.randn(*tuple(q.shape))), False)).sum() for q in outs)
                g = list(T.autograd.grad(tot, ps, allow_unused=True))
            return [repr(m), list(m.state_dict().keys()), flat, g, [b for b in m.buffers()]]

        return f

    def twice(ctor, *inp):
        """Two calls before one backward, as siamese networks do it; the versions of what the calls write to."""

        def f():
            m = fill(ctor())
            outs = [q for _ in range(2) for q in leaves(m(*inp)) if q.requires_grad]
            ps = [p for p in m.parameters()] + [i for i in inp if isinstance(i, T.Tensor) and i.requires_grad]
            before = [b._version for b in m.buffers()]
            m(*inp)
            moved = [b._version - v for b, v in zip(m.buffers(), before)]
            g = T.autograd.grad(sum((q * q).sum() for q in outs), ps, allow_unused=True) if outs and ps else []
            return [list(g), moved]

        return f

    x = r(2, 6, 8, 8)
    x1 = r(2, 6, 9)
    x3 = r(1, 4, 4, 5, 5)
    xl = r(3, 5, 6)
    for n, c, i in [
        ("lin", lambda: nn.Linear(6, 4), xl),
        ("linnb", lambda: nn.Linear(6, 4, bias=False), xl),
        ("id", lambda: nn.Identity(), xl),
        ("bil", lambda: nn.Bilinear(6, 6, 3), (xl, xl)),
        ("conv", lambda: nn.Conv2d(6, 4, 3, 2, 1, groups=2), x),
        ("convr", lambda: nn.Conv2d(6, 4, 3, padding=1, padding_mode="reflect"), x),
        ("convc", lambda: nn.Conv2d(6, 4, 3, padding="same", padding_mode="circular"), x),
        ("conv1", lambda: nn.Conv1d(6, 4, 3, dilation=2), x1),
        ("conv3", lambda: nn.Conv3d(4, 2, 2), x3),
        ("ct", lambda: nn.ConvTranspose2d(6, 4, 3, 2, 1, output_padding=1), x),
        ("ct1", lambda: nn.ConvTranspose1d(6, 4, 3, 2), x1),
        ("ct3", lambda: nn.ConvTranspose3d(4, 2, 2), x3),
        ("bn", lambda: nn.BatchNorm2d(6), x),
        ("bnm", lambda: nn.BatchNorm2d(6, momentum=None), x),
        ("bnna", lambda: nn.BatchNorm2d(6, affine=False), x),
        ("bnnt", lambda: nn.BatchNorm2d(6, track_running_stats=False), x),
        ("bn1", lambda: nn.BatchNorm1d(6), x1),
        ("bn3", lambda: nn.BatchNorm3d(4), x3),
        ("sbn", lambda: nn.SyncBatchNorm(6), x),
        ("in", lambda: nn.InstanceNorm2d(6), x),
        ("ina", lambda: nn.InstanceNorm2d(6, affine=True, track_running_stats=True), x),
        ("in1", lambda: nn.InstanceNorm1d(6), x1),
        ("ln", lambda: nn.LayerNorm((5, 6)), xl),
        ("ln2", lambda: nn.LayerNorm(6, elementwise_affine=False), xl),
        ("ln3", lambda: nn.LayerNorm(6, bias=False), xl),
        ("gn", lambda: nn.GroupNorm(3, 6), x),
        ("rms", lambda: nn.RMSNorm(6), xl),
        ("lrn", lambda: nn.LocalResponseNorm(2), x),
        ("relu", lambda: nn.ReLU(), x),
        ("relu6", lambda: nn.ReLU6(), x),
        ("lrelu", lambda: nn.LeakyReLU(0.2), x),
        ("prelu", lambda: nn.PReLU(), x),
        ("prelu6", lambda: nn.PReLU(6), x),
        ("elu", lambda: nn.ELU(0.7), x),
        ("celu", lambda: nn.CELU(0.7), x),
        ("selu", lambda: nn.SELU(), x),
        ("gelu", lambda: nn.GELU(), x),
        ("gelut", lambda: nn.GELU("tanh"), x),
        ("silu", lambda: nn.SiLU(), x),
        ("mish", lambda: nn.Mish(), x),
        ("hsw", lambda: nn.Hardswish(), x),
        ("hsg", lambda: nn.Hardsigmoid(), x),
        ("hth", lambda: nn.Hardtanh(-0.5, 0.6), x),
        ("sig", lambda: nn.Sigmoid(), x),
        ("tanh", lambda: nn.Tanh(), x),
        ("sp", lambda: nn.Softplus(2.0, 1.0), x),
        ("ss", lambda: nn.Softshrink(0.3), x),
        ("hs", lambda: nn.Hardshrink(0.3), x),
        ("ts", lambda: nn.Tanhshrink(), x),
        ("sos", lambda: nn.Softsign(), x),
        ("ls", lambda: nn.LogSigmoid(), x),
        ("th", lambda: nn.Threshold(0.1, 0.2), x),
        ("glu", lambda: nn.GLU(1), x),
        ("sm", lambda: nn.Softmax(1), x),
        ("lsm", lambda: nn.LogSoftmax(1), x),
        ("smin", lambda: nn.Softmin(1), x),
        ("sm2", lambda: nn.Softmax2d(), x),
        ("smn", lambda: nn.Softmax(), x),
        ("mp", lambda: nn.MaxPool2d(2), x),
        ("mpi", lambda: nn.MaxPool2d(3, 2, 1, return_indices=True), x),
        ("ap", lambda: nn.AvgPool2d(3, 2, 1), x),
        ("aap", lambda: nn.AdaptiveAvgPool2d((3, None)), x),
        ("amp", lambda: nn.AdaptiveMaxPool2d(3, return_indices=True), x),
        ("lp", lambda: nn.LPPool2d(2, 2), r.pos(2, 3, 4, 4)),
        ("lp1", lambda: nn.LPPool1d(3, 2), r.pos(2, 3, 4)),
        ("mp1", lambda: nn.MaxPool1d(2), x1),
        ("ap1", lambda: nn.AvgPool1d(2), x1),
        ("aap1", lambda: nn.AdaptiveAvgPool1d(2), x1),
        ("mp3", lambda: nn.MaxPool3d(2), x3),
        ("ap3", lambda: nn.AvgPool3d(2), x3),
        ("aap3", lambda: nn.AdaptiveAvgPool3d(2), x3),
        ("zp", lambda: nn.ZeroPad2d((1, 2, 0, 1)), x),
        ("cp", lambda: nn.ConstantPad2d(1, 0.5), x),
        ("rp", lambda: nn.ReflectionPad2d(2), x),
        ("rpp", lambda: nn.ReplicationPad2d(2), x),
        ("ccp", lambda: nn.CircularPad2d(2), x),
        ("rp1", lambda: nn.ReflectionPad1d(2), x1),
        ("zp1", lambda: nn.ZeroPad1d(2), x1),
        ("cp3", lambda: nn.ConstantPad3d(1, 2.0), x3),
        ("up", lambda: nn.Upsample(scale_factor=2), x),
        ("upb", lambda: nn.Upsample((5, 7), mode="bilinear", align_corners=True), x),
        ("upn", lambda: nn.UpsamplingNearest2d(scale_factor=2), x),
        ("upbb", lambda: nn.UpsamplingBilinear2d(scale_factor=2), x),
        ("ps", lambda: nn.PixelShuffle(2), r(1, 8, 3, 2)),
        ("pu", lambda: nn.PixelUnshuffle(2), x),
        ("cs", lambda: nn.ChannelShuffle(3), x),
        ("fl", lambda: nn.Flatten(), x),
        ("ufl", lambda: nn.Unflatten(1, (2, 3)), x),
        ("uf", lambda: nn.Unfold(3, 1, 1, 2), x),
        ("fo", lambda: nn.Fold((5, 5), 2), r(2, 12, 16)),
        ("pd", lambda: nn.PairwiseDistance(), (xl, r(3, 5, 6))),
        ("cos", lambda: nn.CosineSimilarity(2), (xl, r(3, 5, 6))),
        ("rnn", lambda: nn.RNN(6, 4, 2, bidirectional=True), xl),
        ("rnnr", lambda: nn.RNN(6, 4, nonlinearity="relu", batch_first=True), xl),
        ("lstm", lambda: nn.LSTM(6, 4, 2, bidirectional=True), xl),
        ("lstmp", lambda: nn.LSTM(6, 4, 2, proj_size=2, bidirectional=True, batch_first=True), xl),
        ("lstmnb", lambda: nn.LSTM(6, 4, bias=False), xl),
        ("gru", lambda: nn.GRU(6, 4, 2, bidirectional=True), xl),
        ("grunb", lambda: nn.GRU(6, 4, bias=False, batch_first=True), xl),
        ("gruu", lambda: nn.GRU(6, 4), r(5, 6)),
        ("lstmu", lambda: nn.LSTM(6, 4), r(5, 6)),
        ("lcell", lambda: nn.LSTMCell(6, 4), r(5, 6)),
        ("gcell", lambda: nn.GRUCell(6, 4), r(5, 6)),
        ("rcell", lambda: nn.RNNCell(6, 4), r(5, 6)),
        ("mha", lambda: nn.MultiheadAttention(6, 2), (xl, xl, xl)),
        (
            "mhab",
            lambda: nn.MultiheadAttention(6, 2, batch_first=True, add_bias_kv=True, add_zero_attn=True),
            (xl, xl, xl),
        ),
        ("mhak", lambda: nn.MultiheadAttention(6, 2, kdim=4, vdim=3), (xl, r(4, 5, 4), r(4, 5, 3))),
        ("mhau", lambda: nn.MultiheadAttention(6, 3, bias=False), (r(4, 6), r(5, 6), r(5, 6))),
        ("tel", lambda: nn.TransformerEncoderLayer(6, 2, 8, 0.0), xl),
        (
            "telp",
            lambda: nn.TransformerEncoderLayer(6, 2, 8, 0.0, norm_first=True, activation="gelu", batch_first=True),
            xl,
        ),
        ("tdl", lambda: nn.TransformerDecoderLayer(6, 2, 8, 0.0), (xl, r(4, 5, 6))),
        (
            "te",
            lambda: nn.TransformerEncoder(
                nn.TransformerEncoderLayer(6, 2, 8, 0.0, batch_first=True), 2, nn.LayerNorm(6)
            ),
            xl,
        ),
        ("tr", lambda: nn.Transformer(6, 2, 1, 1, 8, 0.0), (xl, r(4, 5, 6))),
        ("ce", lambda: nn.CrossEntropyLoss(), (r(4, 3), r.ints(0, 3, 4))),
        (
            "seq",
            lambda: nn.Sequential(
                nn.Conv2d(6, 2, 3),
                nn.ReLU(inplace=True),
                nn.Sequential(nn.Flatten(), nn.Linear(72, 2)),
            ),
            x,
        ),
        ("emb", lambda: nn.Embedding(5, 3, padding_idx=1), r.ints(0, 5, 2, 4)),
        (
            "emb2",
            lambda: nn.Embedding(5, 3, max_norm=0.5, scale_grad_by_freq=True),
            r.ints(0, 5, 2, 4),
        ),
        ("eb", lambda: nn.EmbeddingBag(5, 3), r.ints(0, 5, 2, 4)),
        ("ebm", lambda: nn.EmbeddingBag(5, 3, mode="max"), r.ints(0, 5, 2, 4)),
        (
            "ebo",
            lambda: nn.EmbeddingBag(5, 3, mode="sum", padding_idx=2),
            (r.ints(0, 5, 6), r.arr(np.array([0, 2, 2]))),
        ),
        ("do", lambda: nn.Dropout(0.0), x),
    ]:
        i = i if isinstance(i, tuple) else (i,)
        yield n, mod(c, *i)
        yield n + "_ev", mod(c, *i, ev=True)
        yield n + "_twice", twice(c, *i)

    def packed(ctor, enforce):
        def f():
            m = fill(ctor())
            L = [5, 3, 3, 1] if enforce else [3, 5, 1, 3]
            xx = r(5, 4, 6)
            p = nn.utils.rnn.pack_padded_sequence(xx, L, enforce_sorted=enforce)
            y, h = m(p)
            z, l = nn.utils.rnn.pad_packed_sequence(y)
            hs = list(h) if isinstance(h, tuple) else [h]
            g = T.autograd.grad((z * z).sum() + sum((q**3).sum() for q in hs), [xx] + list(m.parameters()))
            return [y.data, y.batch_sizes, z, l, hs, list(g)]

        return f

    for k in ("RNN", "LSTM", "GRU"):
        for e in (True, False):
            yield (
                f"packed{k}{e}",
                packed(lambda k=k: getattr(nn, k)(6, 4, 2, bidirectional=True), e),
            )
    yield "packedproj", packed(lambda: nn.LSTM(6, 4, 2, bidirectional=True, proj_size=3), False)

    def gg(ctor):
        def f():
            m = fill(ctor())
            xx = r(3, 2, 6)
            y = m(xx)[0]
            g = T.autograd.grad((y**2).sum(), [xx] + list(m.parameters()), create_graph=True)
            return list(T.autograd.grad(sum((q**2).sum() for q in g), [xx] + list(m.parameters())))

        return f

    for k in ("RNN", "LSTM", "GRU"):
        yield f"gg{k}", gg(lambda k=k: getattr(nn, k)(6, 4, 2, bidirectional=True))
    yield "ggproj", gg(lambda: nn.LSTM(6, 4, 2, bidirectional=True, proj_size=3))
    E = [
        lambda: nn.LSTM(6, 4)(r(2, 3, 5)),
        lambda: nn.LSTM(6, 4)(r(2, 3, 6)),
        lambda: nn.LSTM(6, 4)(r(2, 3, 6, dtype="float32"), (r(1, 2, 4, dtype="float32"), r(1, 3, 4, dtype="float32"))),
        lambda: nn.GRU(6, 4, proj_size=2),
        lambda: nn.LSTM(6, 4, proj_size=4),
        lambda: nn.LSTM(6, 4, dropout=2),
        lambda: nn.LSTM(6, 0),
        lambda: nn.RNN(6, 4, nonlinearity="foo"),
        lambda: nn.Conv2d(3, 4, 3, groups=2),
        lambda: nn.Linear(3, 4)(r(2, 5, dtype="float32")),
        lambda: nn.BatchNorm2d(3)(r(2, 3, dtype="float32")),
        lambda: nn.MultiheadAttention(5, 2),
        lambda: nn.Dropout(2.0),
        lambda: nn.Embedding(3, 2, padding_idx=5),
        lambda: nn.Module(3),
        lambda: nn.Module()(3),
        lambda: nn.Linear(3, 4).foo,
        lambda: nn.Linear(3, 4).load_state_dict({"weight": r(4, 2, grad=False), "x": r(2)}),
        lambda: nn.Sequential(nn.Linear(3, 4), nn.ReLU()).load_state_dict({}),
        lambda: setattr(nn.Linear(3, 4), "weight", r(3)),
        lambda: nn.Linear(3, 4).register_buffer("weight", r(3)),
        lambda: nn.Linear(2, 2).get_submodule("a.b"),
        lambda: nn.ModuleList([3]),
        lambda: nn.Sequential(nn.Linear(2, 2))[3],
        lambda: nn.Linear(3, 4).to(T.int),
        lambda: nn.Linear(3, 4).load_state_dict([]),
    ]
    for i, e in enumerate(E):
        yield f"err{i}", lambda e=e: repr(e())
