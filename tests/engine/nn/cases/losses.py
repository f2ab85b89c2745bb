"""Cases of losses; see `cases/__init__.py`."""

# ruff: noqa: B007, B023, F841

import numpy as np


def cases(T, nn, F, r):
    x = r(4, 5)
    y = r(4, 5)
    p = r.unif(0.1, 0.9, 4, 5)
    q = r.unif(0.1, 0.9, 4, 5)
    t = r.ints(0, 5, 4)
    w = r.pos(5, grad=False)
    sgn = r.arr(np.sign(r.r.randn(4, 5)), False)
    xm = r(2, 5, 3, 4)
    tm = r.ints(0, 5, 2, 3, 4)
    x3 = r(2, 5, 3)
    t3 = r.ints(0, 5, 2, 3)

    def gg(f, *xs):
        def g():
            y = f(*xs)
            g1 = T.autograd.grad((y * y).sum(), xs, create_graph=True)
            s = sum((q * q * q).sum() for q in g1)
            return list(T.autograd.grad(s, xs))

        return g

    for red in ("mean", "sum", "none"):
        for wn, ww in (("", None), ("w", w)):
            for ii in (-100, 1):
                for nm, a, b in (("2", x, t), ("m", xm, tm), ("3", x3, t3)):
                    yield (
                        f"nll{nm}{red}{wn}{ii}",
                        lambda a=a, b=b, ww=ww, ii=ii, red=red: (
                            F.nll_loss(a, b, ww, ignore_index=ii, reduction=red),
                            [a],
                        ),
                    )
                    yield (
                        f"ce{nm}{red}{wn}{ii}",
                        lambda a=a, b=b, ww=ww, ii=ii, red=red: (
                            F.cross_entropy(a, b, ww, ignore_index=ii, reduction=red),
                            [a],
                        ),
                    )
                    yield (
                        f"cels{nm}{red}{wn}{ii}",
                        lambda a=a, b=b, ww=ww, ii=ii, red=red: (
                            F.cross_entropy(a, b, ww, ignore_index=ii, reduction=red, label_smoothing=0.2),
                            [a],
                        ),
                    )
                    yield (
                        f"cegg{nm}{red}{wn}{ii}",
                        gg(
                            lambda a, b=b, ww=ww, ii=ii, red=red: F.cross_entropy(
                                a, b, ww, ignore_index=ii, reduction=red
                            ),
                            a,
                        ),
                    )
            yield (
                f"cep{red}{wn}",
                lambda ww=ww, red=red: (
                    F.cross_entropy(x, q, ww, reduction=red, label_smoothing=0.1),
                    [x, q],
                ),
            )
            yield (
                f"ce3p{red}{wn}",
                lambda ww=ww, red=red: (
                    F.cross_entropy(x3, r.unif(0.1, 0.9, 2, 5, 3), ww, reduction=red),
                    [x3],
                ),
            )
            yield (
                f"bce{red}{wn}",
                lambda ww=ww, red=red: (F.binary_cross_entropy(p, q, ww, reduction=red), [p, q]),
            )
            yield (
                f"bcel{red}{wn}",
                lambda ww=ww, red=red: (
                    F.binary_cross_entropy_with_logits(x, q, ww, reduction=red),
                    [x, q],
                ),
            )
            yield (
                f"bcelp{red}{wn}",
                lambda ww=ww, red=red: (
                    F.binary_cross_entropy_with_logits(x, q, ww, reduction=red, pos_weight=w),
                    [x],
                ),
            )
            yield (
                f"mm{red}{wn}",
                lambda ww=ww, red=red: (
                    F.multi_margin_loss(x, t, 2, weight=ww, reduction=red),
                    [x],
                ),
            )
            yield (
                f"mlsm{red}{wn}",
                lambda ww=ww, red=red: (
                    F.multilabel_soft_margin_loss(x, q, ww, reduction=red),
                    [x],
                ),
            )
        for n, f in dict(mse=F.mse_loss, l1=F.l1_loss, sl1=F.smooth_l1_loss, hub=F.huber_loss).items():
            yield n + red, lambda f=f, red=red: (f(x, y, reduction=red), [x, y])
            yield (
                n + "gg" + red,
                gg(lambda a, b, f=f, red=red: f(a, b, reduction=red), x, y) if n == "mse" else (lambda: 0),
            )
        yield (
            "sl1b" + red,
            lambda red=red: (F.smooth_l1_loss(x, y, reduction=red, beta=0.3), [x, y]),
        )
        yield "hubb" + red, lambda red=red: (F.huber_loss(x, y, reduction=red, delta=0.3), [x, y])
        yield "kl" + red, lambda red=red: (F.kl_div(x, q, reduction=red), [x, q])
        yield "kll" + red, lambda red=red: (F.kl_div(x, y, reduction=red, log_target=True), [x, y])
        yield "pn" + red, lambda red=red: (F.poisson_nll_loss(x, q, reduction=red, full=True), [x])
        yield (
            "pn2" + red,
            lambda red=red: (
                F.poisson_nll_loss(p, r.pos(4, 5, grad=False), False, True, reduction=red),
                [p],
            ),
        )
        yield (
            "gn" + red,
            lambda red=red: (F.gaussian_nll_loss(x, y, q, reduction=red, full=True), [x, y, q]),
        )
        yield "sm" + red, lambda red=red: (F.soft_margin_loss(x, sgn, reduction=red), [x])
        yield "he" + red, lambda red=red: (F.hinge_embedding_loss(x, sgn, reduction=red), [x])
        yield (
            "mr" + red,
            lambda red=red: (F.margin_ranking_loss(x, y, sgn, 0.3, reduction=red), [x, y]),
        )
        yield (
            "ml" + red,
            lambda red=red: (
                F.multilabel_margin_loss(
                    x,
                    r.arr(np.array([[1, 3, -1, 0, 2], [0, 1, 2, 3, 4], [-1, 1, 1, 1, 1], [2, 2, -1, 0, 0]])),
                    reduction=red,
                ),
                [x],
            ),
        )
        yield (
            "ce_" + red,
            lambda red=red: (F.cosine_embedding_loss(x, y, sgn[:, 0], 0.2, reduction=red), [x, y]),
        )
        yield (
            "tm" + red,
            lambda red=red: (F.triplet_margin_loss(x, y, p, swap=True, reduction=red), [x, y, p]),
        )
        yield (
            "tmd" + red,
            lambda red=red: (
                F.triplet_margin_with_distance_loss(x, y, p, reduction=red),
                [x, y, p],
            ),
        )
        lp = r(7, 3, 5)
        tg = r.arr(np.array([[1, 2, 2, 3], [4, 1, 0, 0], [1, 1, 0, 0]]))
        il = [7, 6, 3]
        tl = [4, 2, 2]
        yield (
            "ctc" + red,
            lambda red=red: (F.ctc_loss(lp.log_softmax(2), tg, il, tl, reduction=red), [lp]),
        )
        yield "ctcraw" + red, lambda red=red: (F.ctc_loss(lp, tg, il, tl, reduction=red), [lp])
        yield (
            "ctcz" + red,
            lambda red=red: (
                F.ctc_loss(lp.log_softmax(2), tg, [7, 6, 2], tl, reduction=red, zero_infinity=True),
                [lp],
            ),
        )
        yield (
            "ctcf" + red,
            lambda red=red: (
                F.ctc_loss(
                    lp.log_softmax(2),
                    r.arr(np.array([1, 2, 2, 3, 4, 1, 1, 1])),
                    r.arr(np.array(il)),
                    r.arr(np.array(tl)),
                    blank=0,
                    reduction=red,
                ),
                [lp],
            ),
        )
    yield "klb", lambda: (F.kl_div(x, q, reduction="batchmean"), [x])
    yield "ce1", lambda: (F.cross_entropy(x[0], t[0]), [x])
    yield "ce1b", lambda: F.cross_entropy(x[0], t[:1], reduction="none")
    yield "legacy", lambda: (F.mse_loss(x, y, size_average=False), [x])
    yield "bc", lambda: F.mse_loss(x, y[:1])
    f32 = lambda *s: r(*s, dtype="float32", grad=False)
    X = f32(3, 5)
    L = lambda a, **k: r.arr(np.array(a, **k))
    E = [
        lambda: F.nll_loss(X, L([0, 1, 5])),
        lambda: F.nll_loss(X, L([0, 1, -1])),
        lambda: F.nll_loss(X, L([0, 1])),
        lambda: F.nll_loss(X, L([0, 1, 2]).float()),
        lambda: F.nll_loss(X, L([0, 1, 2], dtype="int32")),
        lambda: F.nll_loss(X, L([[0, 1, 2]] * 3)),
        lambda: F.nll_loss(X, L([0, 1, 2]), weight=f32(4)),
        lambda: F.nll_loss(f32(5), L(2)),
        lambda: F.nll_loss(f32(5), L([2])),
        lambda: F.nll_loss(f32(5), L([2, 3])),
        lambda: F.nll_loss(f32(2, 5, 3, 3), r.ints(0, 1, 2, 3, 2)),
        lambda: F.nll_loss(f32(2, 5, 3), r.ints(0, 1, 2, 2)),
        lambda: F.nll_loss(f32(0, 5), r.ints(0, 1, 0)),
        lambda: F.cross_entropy(X, f32(3, 4)),
        lambda: F.cross_entropy(X, L([0, 1, 2]), label_smoothing=2.0),
        lambda: F.cross_entropy(X, f32(3, 5), ignore_index=1),
        lambda: F.cross_entropy(X, r.ints(0, 2, 3, 5)),
        lambda: F.cross_entropy(X, L([-100] * 3)),
        lambda: F.cross_entropy(X, L([0, 1, 2]), reduction="foo"),
        lambda: F.mse_loss(X, f32(3)),
        lambda: F.binary_cross_entropy(X, f32(3, 5)),
        lambda: F.binary_cross_entropy(X.sigmoid(), f32(3, 4)),
        lambda: F.binary_cross_entropy(X.sigmoid(), r.ints(0, 2, 3, 5)),
        lambda: F.binary_cross_entropy_with_logits(X, f32(3, 4)),
        lambda: F.soft_margin_loss(X, f32(3, 4)),
        lambda: F.multi_margin_loss(X, L([0, 1, 5])),
        lambda: F.multi_margin_loss(X, L([0, 1])),
        lambda: F.multilabel_margin_loss(X, r.ints(0, 1, 2, 5)),
        lambda: F.multilabel_margin_loss(X, L([[0, 7, -1, 0, 0]] * 3)),
        lambda: F.cosine_embedding_loss(X, X, f32(3, 1)),
        lambda: F.margin_ranking_loss(X, X, f32(3)),
        lambda: F.triplet_margin_loss(X, X, f32(5)),
        lambda: F.gaussian_nll_loss(X, X, -X.abs()),
        lambda: F.embedding(L([0, 5]), f32(5, 2)),
        lambda: F.embedding(f32(2), f32(5, 2)),
        lambda: F.embedding(L([0, 1]), f32(5)),
        lambda: F.embedding(L([0, 1], dtype="int16"), f32(5, 2)),
        lambda: F.mse_loss(X.long(), X.long()),
        lambda: F.mse_loss(X, X.double()),
        lambda: F.cross_entropy(X, L([0, 1, 2]), weight=f32(5).double()),
        lambda: F.nll_loss(f32(3), L([[1]])),
        lambda: F.nll_loss(L(3.0), L(1)),
        lambda: F.nll_loss(X.half(), L([0, 1, 2])),
        lambda: F.cross_entropy(X, L([0, 1, 2], dtype="uint8")),
        lambda: F.smooth_l1_loss(X, X, beta=-1),
        lambda: F.huber_loss(X, X, delta=0.0),
        lambda: F.l1_loss(X, X, weight=X),
        lambda: F.cross_entropy(X.half(), L([0, 1, 2])),
    ]
    for i, e in enumerate(E):
        yield f"err{i}", e
    # vision / misc
    im = r(2, 3, 5, 6)
    g = r.unif(-1.2, 1.2, 2, 4, 3, 2)
    im3 = r(1, 2, 3, 4, 5)
    g3 = r.unif(-1.2, 1.2, 1, 2, 3, 2, 3)
    for m in ("bilinear", "nearest", "bicubic"):
        for pm in ("zeros", "border", "reflection"):
            for ac in (True, False):
                yield (
                    f"gs{m}{pm}{ac}",
                    lambda m=m, pm=pm, ac=ac: (F.grid_sample(im, g, m, pm, ac), [im, g]),
                )
                if m != "bicubic":
                    yield (
                        f"gs3{m}{pm}{ac}",
                        lambda m=m, pm=pm, ac=ac: (F.grid_sample(im3, g3, m, pm, ac), [im3, g3]),
                    )
    th = r(2, 2, 3)
    th3 = r(2, 3, 4)
    for ac in (True, False):
        yield f"ag{ac}", lambda ac=ac: (F.affine_grid(th, (2, 3, 4, 5), ac), [th])
        yield f"ag3{ac}", lambda ac=ac: (F.affine_grid(th3, (2, 3, 4, 5, 2), ac), [th3])
    yield "gsd", lambda: F.grid_sample(im, g)
    yield "agd", lambda: F.affine_grid(th, (2, 3, 4, 5))
    yield "gse1", lambda: F.grid_sample(im, g[:1], align_corners=True)
    yield "gse2", lambda: F.grid_sample(im, g.float(), align_corners=True)
    yield "gse3", lambda: F.grid_sample(im, g, "foo")
    yield "age", lambda: F.affine_grid(th, (2, 3, 4), True)
    yield "uf", lambda: (F.unfold(im, (2, 3), 1, (1, 0), 2), [im])
    yield "ufu", lambda: (F.unfold(im[0], 2), [im])
    yield "fo", lambda: F.fold(r(2, 12, 12), (4, 5), 2)
    yield "ufe", lambda: F.unfold(im, 9)
    yield "foe", lambda: F.fold(r(2, 12, 13), (4, 5), 2)
    yield "foe2", lambda: F.fold(r(2, 13, 12), (4, 5), 2)
    yield "ps", lambda: F.pixel_shuffle(im, 2)
    yield "cs", lambda: F.channel_shuffle(im, 2)
    for hm in (None,):
        qq = r(2, 2, 4, 3)
        kk = r(2, 2, 5, 3)
        vv = r(2, 2, 5, 6)
        mk = r.bools(4, 5)
        mf = r(4, 5)
        yield "sdpa", lambda: (F.scaled_dot_product_attention(qq, kk, vv), [qq, kk, vv])
        yield (
            "sdpac",
            lambda: (F.scaled_dot_product_attention(qq, kk, vv, is_causal=True), [qq, kk, vv]),
        )
        yield "sdpam", lambda: (F.scaled_dot_product_attention(qq, kk, vv, mk), [qq, kk, vv])
        yield (
            "sdpaf",
            lambda: (F.scaled_dot_product_attention(qq, kk, vv, mf, scale=0.3), [qq, kk, vv, mf]),
        )
        dead = r.arr(np.array([[True] * 5, [False] * 5, [True] * 5, [True] * 5]))
        yield "sdpad", lambda: (F.scaled_dot_product_attention(qq, kk, vv, dead), [qq, kk, vv])
        kg = r(2, 1, 5, 3)
        vg = r(2, 1, 5, 6)
        yield (
            "gqa",
            lambda: (F.scaled_dot_product_attention(qq, kg, vg, enable_gqa=True), [qq, kg, vg]),
        )
    yield "norm", lambda: (F.normalize(x), [x])
    yield "norm1", lambda: (F.normalize(xm, 1, (2, 3)), [xm])
    yield "cos", lambda: (F.cosine_similarity(x, y), [x, y])
    yield "pdi", lambda: (F.pairwise_distance(x, y, 1.0), [x, y])
    yield "oh", lambda: F.one_hot(t, 6)
    u, i = None, None

    def unpool(n):
        def f():
            xx = r(*((2, 3) + (6,) * n))
            y, i = getattr(F, f"max_pool{n}d")(xx, 2, return_indices=True)
            z = getattr(F, f"max_unpool{n}d")(y, i, 2)
            return [z, i], [xx]

        return f

    for n in (1, 2, 3):
        yield f"up{n}", unpool(n)
    sm = r.unif(0, 1, 2, 3, 2, grad=False)
    xx = r(2, 3, 7, 9)
    yield (
        "frac",
        lambda: (
            list(F.fractional_max_pool2d(xx, 2, (3, 4), return_indices=True, _random_samples=sm)),
            [xx],
        ),
    )
    sm3 = r.unif(0, 1, 2, 3, 3, grad=False)
    xx3 = r(2, 3, 5, 6, 7)
    yield (
        "frac3",
        lambda: (
            list(F.fractional_max_pool3d(xx3, 2, (2, 3, 4), return_indices=True, _random_samples=sm3)),
            [xx3],
        ),
    )
    al = nn.AdaptiveLogSoftmaxWithLoss
    yield "fr_e", lambda: F.fractional_max_pool2d(xx, 2)
    yield "lpi", lambda: F.lp_pool2d(im, float("inf"), 2)
    yield "mp_ret", lambda: F.max_pool2d(im, 2, return_indices=True)[1]
    yield "aret", lambda: F.adaptive_max_pool2d(im, 2, return_indices=True)[1]
    yield "lce", lambda: F.linear_cross_entropy(x, y, t) if False else 0
