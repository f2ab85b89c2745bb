"""Cases of behaviour; see `cases/__init__.py`."""

# ruff: noqa: B007

import copy
import pickle
from collections import OrderedDict

import numpy as np


def cases(T, nn, F, r):
    def fill(m, seed=3):
        rr = np.random.RandomState(seed)
        m.double()
        with T.no_grad():
            for n, p in list(m.named_parameters()) + [
                (n, b) for n, b in m.named_buffers() if b.dtype.is_floating_point
            ]:
                p.copy_(r.arr(np.asarray(rr.randn(*tuple(p.shape)) * 0.3), False))
        return m

    x = r(2, 3)

    def fwd():
        log = []
        m = fill(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)))
        h1 = m[0].register_forward_hook(
            lambda mod, i, o: log.append(("f", mod._get_name(), len(i), o.detach())) or o * 2
        )
        m[2].register_forward_pre_hook(lambda mod, i: (log.append(("p", len(i))), (i[0] + 1,))[1])
        m.register_forward_pre_hook(
            lambda mod, a, k: (log.append(("k", len(a), sorted(k))), (a, k))[1], with_kwargs=True
        )
        m.register_forward_hook(lambda mod, a, k, o: log.append(("fk", sorted(k))), with_kwargs=True, prepend=True)
        y = m(x)
        h1.remove()
        z = m(x)
        return [log, y, z]

    yield "fwd", fwd

    def bwd():
        log = []
        m = fill(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)))

        def hook(mod, gi, go):
            log.append([mod._get_name(), list(gi), list(go)])

        def hook2(mod, gi, go):
            log.append("replaced")
            return tuple(g * 2 if g is not None else None for g in gi)

        m[0].register_full_backward_hook(hook)
        m[1].register_full_backward_hook(hook2)
        m[2].register_full_backward_hook(hook)
        m[2].register_full_backward_pre_hook(lambda mod, go: (log.append(["pre", list(go)]), (go[0] * 3,))[1])
        m.register_full_backward_hook(hook)
        xx = r(2, 3)
        y = m(xx)
        (y**2).sum().backward()
        return [log, xx.grad, [p.grad for p in m.parameters()]]

    yield "bwd", bwd

    def bwd2():
        log = []
        m = fill(nn.Linear(3, 4))
        m.register_full_backward_hook(lambda mod, gi, go: log.append([list(gi), list(go)]))
        y = m(x.detach())
        y.sum().backward()
        return log

    yield "bwd_noinput", bwd2

    def old():
        log = []
        m = fill(nn.ReLU())
        m.register_backward_hook(lambda mod, gi, go: log.append([list(gi), list(go)]))
        xx = r(2, 3)
        (m(xx) * 2).sum().backward()
        return [log, xx.grad]

    yield "old", old

    def glob():
        log = []
        h = nn.modules.module.register_module_forward_hook(lambda m, i, o: log.append(m._get_name()))
        fill(nn.Sequential(nn.Linear(3, 2), nn.ReLU()))(x)
        h.remove()
        return log

    yield "glob", glob

    def always():
        log = []

        class M(nn.Module):
            def forward(self, x):
                raise RuntimeError("boom")

        m = M()
        m.register_forward_hook(lambda m, i, o: log.append(str(o)), always_call=True)
        try:
            m(x)
        except RuntimeError as e:
            log.append(str(e))
        return log

    yield "always", always

    class Net(nn.Module):
        def __init__(s):
            super().__init__()
            s.a = nn.Linear(3, 2)
            s.b = nn.BatchNorm1d(2)
            s.register_buffer("buf", T.zeros(2))
            s.register_buffer("np", T.ones(1), persistent=False)
            s.p = nn.Parameter(T.zeros(3))
            s.lst = nn.ModuleList([nn.ReLU(), nn.Linear(2, 2)])
            s.d = nn.ModuleDict({"x": nn.Identity(), "y": nn.Linear(2, 1)})
            s.pl = nn.ParameterList([nn.Parameter(T.zeros(2)), nn.Parameter(T.ones(1, 2))])
            s.pd = nn.ParameterDict({"u": nn.Parameter(T.zeros(2))})
            s.none = None
            s.register_parameter("q", None)
            s.shared = s.a

        def forward(s, x):
            return s.b(s.a(x))

    def info():
        m = Net()
        return [
            repr(m),
            [n for n, _ in m.named_parameters()],
            [n for n, _ in m.named_buffers()],
            [n for n, _ in m.named_modules()],
            [n for n, _ in m.named_children()],
            [n for n, _ in m.named_modules(remove_duplicate=False)],
            list(m.state_dict()),
            {k: dict(v) for k, v in m.state_dict()._metadata.items()},
            len(list(m.parameters())),
            [n for n in dir(m) if not n.startswith("_") and n not in ("ipu", "xpu", "mtia", "T_destination")],
            [n for n, _ in m.named_parameters(remove_duplicate=False)],
        ]

    yield "info", info

    def sd():
        m = Net()
        s = m.state_dict()
        s["extra.x"] = T.zeros(1)
        del s["p"]
        s["a.weight"] = T.zeros(5, 5)
        try:
            m.load_state_dict(s)
        except RuntimeError as e:
            return str(e)

    yield "sderr", sd

    def sd2():
        m = Net()
        s = m.state_dict()
        s["extra.x"] = T.zeros(1)
        del s["p"]
        return repr(m.load_state_dict(s, strict=False))

    yield "sdns", sd2

    def sd3():
        m = fill(Net())
        n = fill(Net(), 5)
        r1 = repr(n.load_state_dict(m.state_dict()))
        return [r1, [v for v in n.state_dict().values()], list(m.state_dict(prefix="z."))]

    yield "sdok", sd3

    def sd4():
        m = fill(nn.Linear(2, 2))
        o = m.weight
        s = {k: v.clone() for k, v in fill(nn.Linear(2, 2), 9).state_dict().items()}
        m.load_state_dict(s, assign=True)
        return [m.weight, m.weight is o, type(m.weight).__name__, m.weight.requires_grad]

    yield "sdassign", sd4

    def sd5():
        m = nn.Sequential(nn.Linear(2, 2))
        log = []
        m._register_load_state_dict_pre_hook(lambda sd, p, *a: (log.append(p), sd.__setitem__("0.bias", T.ones(2))))
        m[0].register_load_state_dict_post_hook(
            lambda mod, inc: log.append([list(inc.missing_keys)]) or inc.missing_keys.clear()
        )
        m.register_state_dict_pre_hook(lambda mod, p, k: log.append(("pre", p, k)))
        m._register_state_dict_hook(lambda mod, sd, p, lm: sd.__setitem__("zz", 1))
        s = m.state_dict()
        s.pop("0.weight")
        s.pop("zz")
        res = repr(m.load_state_dict(s))
        return [log, res, m[0].bias]

    yield "sdhooks", sd5

    def bn_old():
        m = nn.BatchNorm1d(2)
        s = OrderedDict(m.state_dict())
        del s["num_batches_tracked"]
        return repr(m.load_state_dict(s))

    yield "bnold", bn_old

    def dc():
        m = fill(Net())
        n = copy.deepcopy(m)
        n.a.weight.data.zero_()
        return [m.a.weight, n.a.weight, n.shared is n.a, repr(n) == repr(m)]

    yield "deepcopy", dc

    def pk():
        m = fill(nn.Sequential(nn.Linear(3, 2), nn.LSTM(2, 3), nn.BatchNorm1d(2)))
        n = pickle.loads(pickle.dumps(m))
        return [list(n.state_dict().values()), repr(n)]

    yield "pickle", pk

    def conv():
        m = Net()
        m.half()
        a = [str(v.dtype) for v in m.state_dict().values()]
        m.to(T.float64)
        b = [str(v.dtype) for v in m.state_dict().values()]
        p = m.a.weight
        m.float()
        return [a, b, m.a.weight is p]

    yield "convert", conv

    def tr():
        m = nn.Sequential(nn.Dropout(0.5), nn.BatchNorm1d(3))
        m.eval()
        a = [q.training for q in m.modules()]
        m.train()
        m[0].eval()
        return [a, [q.training for q in m.modules()]]

    yield "train", tr

    def zg():
        m = fill(nn.Linear(3, 2))
        m(x).sum().backward()
        m.zero_grad(set_to_none=False)
        a = m.weight.grad
        m.zero_grad()
        return [
            a,
            m.weight.grad is None,
            [p.requires_grad for p in m.requires_grad_(False).parameters()],
        ]

    yield "zerograd", zg

    def seq():
        m = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
        a = repr(m[:2])
        m.insert(1, nn.Tanh())
        m.append(nn.Sigmoid())
        b = repr(m)
        del m[0]
        m[0] = nn.GELU()
        c = repr(m)
        d = repr(m + nn.Sequential(nn.ReLU()))
        m.extend([nn.ELU()])
        e = repr(m.pop(-1))
        return [
            a,
            b,
            c,
            d,
            e,
            repr(m * 2),
            len(m),
            repr(nn.ModuleList([nn.ReLU(), nn.ReLU(), nn.Tanh()]) + [nn.ReLU()]),
            repr(nn.ModuleList([nn.Linear(1, 1)] * 3)),
        ]

    yield "seq", seq

    def pdict():
        d = nn.ParameterDict({"b": T.zeros(2), "a": nn.Parameter(T.ones(1))})
        d["c"] = 3
        l = nn.ParameterList([T.zeros(2), nn.Parameter(T.ones(2, 2)), "s"])
        return [
            repr(d),
            repr(l),
            list(d.keys()),
            len(l),
            repr(l[1:]),
            "a" in d,
            d.get("z"),
            [n for n, _ in d.named_parameters()],
        ]

    yield "pdict", pdict

    def attrs():
        m = nn.Linear(2, 2)
        m.weight = None
        a = [m.weight is None, list(m._parameters)]
        m.foo = nn.Parameter(T.zeros(1))
        del m.foo
        m.b = nn.Buffer(T.ones(2))
        m.b = T.zeros(2)
        m.c = nn.Buffer(T.ones(1), persistent=False)
        return [a, list(m._parameters), list(m._buffers), list(m.state_dict()), m.get_buffer("b")]

    yield "attrs", attrs

    def par():
        return [
            repr(nn.Parameter(T.zeros(2))),
            repr(nn.Parameter(T.ones(1), requires_grad=False)),
            isinstance(nn.Parameter(T.zeros(1)), T.Tensor),
            type(nn.Parameter(T.zeros(1)) + 1).__name__,
        ]

    yield "param", par
    U = nn.utils

    def wn():
        m = fill(U.parametrizations.weight_norm(nn.Linear(3, 2)))
        xx = r(2, 3)
        y = m(xx)
        g = T.autograd.grad((y**2).sum(), list(m.parameters()))
        s = list(m.state_dict())
        rp = repr(m)
        w = m.weight.detach()
        U.parametrize.remove_parametrizations(m, "weight")
        return [y, list(g), s, rp, w, repr(m), list(m.state_dict()), m.weight]

    yield "wn_par", wn

    def wn2():
        m = nn.Conv1d(3, 2, 2).double()
        fill(m)
        m = U.weight_norm(m)
        xx = r(2, 3, 4)
        y = m(xx)
        g = T.autograd.grad((y**2).sum(), list(m.parameters()))
        s = list(m.state_dict())
        U.remove_weight_norm(m)
        return [y, list(g), s, list(m.state_dict()), m(xx)]

    yield "wn_hook", wn2

    def wn3():
        m = fill(nn.Linear(3, 2))
        U.parametrizations.weight_norm(m)
        s = OrderedDict([("bias", T.zeros(2)), ("weight_g", T.ones(2, 1)), ("weight_v", T.ones(2, 3))])
        return [repr(m.load_state_dict(s)), m.weight]

    yield "wn_compat", wn3

    def sn():
        m = fill(nn.Linear(3, 2))
        U.spectral_norm(m)
        with T.no_grad():
            m.weight_u.copy_(r.arr(np.array([0.6, 0.8]), False))
            m.weight_v.copy_(r.arr(np.array([0.6, 0.8, 0.0]), False))
        xx = r(2, 3)
        y = m(xx)
        g = T.autograd.grad((y**2).sum(), [m.weight_orig])
        m.eval()
        return [y, list(g), m(xx), list(m.state_dict()), m.weight_u, m.weight_v]

    yield "sn_hook", sn

    def sn2():
        m = fill(nn.Linear(3, 2))
        U.parametrizations.spectral_norm(m)
        p = m.parametrizations.weight[0]
        with T.no_grad():
            p._u.copy_(r.arr(np.array([0.6, 0.8]), False))
            p._v.copy_(r.arr(np.array([0.6, 0.8, 0.0]), False))
        xx = r(2, 3)
        y = m(xx)
        g = T.autograd.grad((y**2).sum(), list(m.parameters()))
        m.eval()
        return [y, list(g), m(xx), list(m.state_dict()), repr(m)]

    yield "sn_par", sn2

    def orth():
        out = []
        for k, mp in (
            (nn.Linear(4, 4), None),
            (nn.Linear(3, 5), None),
            (nn.Linear(5, 3), "cayley"),
            (nn.Linear(4, 4), "householder"),
        ):
            m = fill(k)
            U.parametrizations.orthogonal(m, orthogonal_map=mp)
            w = m.weight
            a = w @ w.mT if w.shape[0] < w.shape[1] else w.mT @ w
            out.append(
                [
                    bool(T.allclose(a, T.eye(a.shape[0], dtype=a.dtype), atol=1e-8)),
                    list(m.state_dict()),
                ]
            )
        return out

    yield "orth", orth

    def cl():
        m = fill(nn.Linear(3, 2))
        (m(x) ** 2).sum().backward()
        n = U.clip_grad_norm_(m.parameters(), 0.5)
        a = m.weight.grad.clone()
        U.clip_grad_value_(m.parameters(), 0.1)
        return [
            n,
            a,
            m.weight.grad,
            U.clip_grad_norm_(m.parameters(), 1.0, norm_type=float("inf")),
            U.clip_grad_norm_([], 1.0),
            U.get_total_norm([x, x], 1.0),
        ]

    yield "clip", cl

    def vec():
        m = fill(nn.Linear(3, 2))
        v = U.parameters_to_vector(m.parameters())
        U.vector_to_parameters(v * 2, m.parameters())
        return [v, m.weight]

    yield "vec", vec

    def pads():
        a = [r(3, 2, grad=False), r(1, 2, grad=False), r(2, 2, grad=False)]
        R = U.rnn
        p = R.pad_sequence(a)
        ps = R.pack_sequence(a, enforce_sorted=False)
        return [
            p,
            R.pad_sequence(a, True, -1.0),
            R.pad_sequence(a, True, padding_side="left"),
            list(ps),
            R.unpad_sequence(p.clone(), T.tensor([3, 1, 2])),
            R.unpack_sequence(ps),
            R.pad_packed_sequence(ps, True, total_length=5),
            repr(type(ps).__name__),
            ps.to(T.float32).data,
        ]

    yield "pads", pads
    for i, e in enumerate(
        [
            lambda: U.rnn.pack_padded_sequence(r(3, 2, 1), [1, 2]),
            lambda: U.rnn.pack_padded_sequence(r(3, 2, 1), [2, 0]),
            lambda: U.rnn.pack_padded_sequence(r(3, 2, 1), [2]),
            lambda: U.rnn.pad_sequence([]),
            lambda: U.remove_weight_norm(nn.Linear(2, 2)),
            lambda: U.parametrize.register_parametrization(nn.Linear(2, 2), "foo", nn.Identity()),
            lambda: nn.init.kaiming_uniform_(T.zeros(3)),
            lambda: nn.init.xavier_normal_(T.zeros(3)),
            lambda: nn.init.eye_(T.zeros(3)),
            lambda: nn.init.dirac_(T.zeros(3, 3)),
            lambda: nn.init.orthogonal_(T.zeros(3)),
            lambda: nn.init.calculate_gain("foo"),
            lambda: nn.init.kaiming_normal_(T.zeros(2, 2), mode="foo"),
        ]
    ):
        yield f"uerr{i}", lambda e=e: repr(e())

    def fuse():
        c = fill(nn.Conv2d(3, 4, 3)).eval()
        b = fill(nn.BatchNorm2d(4)).eval()
        b.running_var.abs_().add_(0.5)
        xx = r(1, 3, 5, 5, grad=False)
        f = U.fuse_conv_bn_eval(c, b)
        return [f(xx), b(c(xx))]

    yield "fuse", fuse

    def ini():
        out = []
        for n, a in (
            ("uniform_", (-1, 2)),
            ("normal_", (1, 2)),
            ("trunc_normal_", (0, 1, -1, 1.5)),
            ("xavier_uniform_", (2,)),
            ("xavier_normal_", ()),
            ("kaiming_uniform_", (0.2,)),
            ("kaiming_normal_", (0, "fan_out", "relu")),
            ("orthogonal_", (2,)),
            ("constant_", (3,)),
            ("ones_", ()),
            ("zeros_", ()),
            ("eye_", ()),
        ):
            t = T.empty(400, 300)
            getattr(nn.init, n)(t, *a)
            out.append([n, [round(float(v), 1) for v in (t.mean(), t.std())]])
        d = T.empty(4, 2, 3, 3)
        nn.init.dirac_(d, 2)
        out.append(d)
        s = T.empty(50, 20)
        nn.init.sparse_(s, 0.3)
        out.append((s == 0).sum(0))
        out.append([nn.init.calculate_gain(g) for g in ("relu", "tanh", "selu", "linear", "leaky_relu")])
        return out

    yield "init", ini

    def stat():
        m = fill(nn.Linear(3, 2))
        return U.stateless.functional_call(m, {"weight": T.zeros(2, 3, dtype=T.float64)}, (x,))

    yield "stateless", stat

    def ad():
        m = fill(nn.AdaptiveLogSoftmaxWithLoss(6, 10, [3, 6], div_value=2.0))
        xx = r(5, 6)
        t = r.ints(0, 10, 5)
        o, l = m(xx, t)
        g = T.autograd.grad(l, [xx] + list(m.parameters()), allow_unused=True)
        return [o, l, list(g), m.log_prob(xx), m.predict(xx), repr(m)]

    yield "adaptive", ad

    def lazy():
        m = nn.Sequential(nn.LazyConv2d(3, 2), nn.LazyBatchNorm2d(), nn.Flatten(), nn.LazyLinear(2))
        a = repr(m)
        y = m(T.zeros(1, 2, 4, 4) + T.arange(16.0).reshape(4, 4))
        return [a, repr(m), tuple(y.shape), list(m.state_dict())]

    yield "lazy", lazy

    def teval():
        m = fill(nn.TransformerEncoder(nn.TransformerEncoderLayer(6, 2, 8, 0.0, batch_first=True), 2)).eval()
        xx = r(2, 4, 6, grad=False)
        pad = r.arr(np.array([[False] * 4, [False, False, True, True]]))
        with T.no_grad():
            a = m(xx, src_key_padding_mask=pad)
        return [
            a,
            m(xx, src_key_padding_mask=pad),
            m(xx, mask=nn.Transformer.generate_square_subsequent_mask(4).double()),
        ]

    yield "teval", teval

    def drop():
        T.manual_seed(0)
        xx = T.ones(100, 200)
        a = F.dropout(xx, 0.25)
        b = F.dropout2d(T.ones(20, 30, 4, 4), 0.5)
        c = F.alpha_dropout(T.randn(200, 300), 0.3, True)
        return [
            round(float((a == 0).float().mean()), 1),
            sorted(set(round(float(v), 4) for v in a.unique())),
            [round(float(v), 1) for v in b.flatten(2).std(2).max()[None]],
            round(float(c.mean()), 1),
            round(float(c.std()), 1),
            bool(F.dropout(xx, 0.5, False) is xx),
            F.dropout(xx[:1, :2], 1.0),
        ]

    yield "drop", drop

    def dp():
        m = nn.DataParallel(nn.Linear(2, 2))
        return [
            list(m.state_dict()),
            repr(m),
            isinstance(nn.parallel.DistributedDataParallel, type),
        ]

    yield "dp", dp

    def misc():
        m = nn.Linear(2, 3)
        return [
            m.get_parameter("weight").shape == (3, 2),
            nn.Sequential(m).get_submodule("0") is m,
            len(list(nn.Sequential(m, m).modules())),
            nn.Sequential(OrderedDict(a=m)).a is m,
            F.gumbel_softmax(T.zeros(5, 4), hard=True).sum(1).tolist(),
        ]

    yield "misc", misc

    def ctcm():
        return repr(nn.CTCLoss())

    yield "ctcm", ctcm
