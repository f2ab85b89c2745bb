"""Cases of pooling; see `cases/__init__.py`."""


def cases(T, nn, F, r):
    x = r(2, 3, 7, 8)
    x3 = r(1, 2, 5, 6, 7)
    x1 = r(2, 3, 9)
    for i, (k, s, p, d, c) in enumerate(
        [
            (2, None, 0, 1, False),
            (3, 2, 1, 1, False),
            (3, 2, 1, 1, True),
            ((3, 2), (1, 2), (1, 0), 1, False),
            (2, 1, 0, 2, True),
            (3, 3, 0, 1, True),
            (5, 1, 2, 1, False),
        ]
    ):
        yield f"mp{i}", lambda k=k, s=s, p=p, d=d, c=c: (F.max_pool2d(x, k, s, p, d, c), [x])
        yield (
            f"mpi{i}",
            lambda k=k, s=s, p=p, d=d, c=c: (
                list(F.max_pool2d(x, k, s, p, d, c, return_indices=True)),
                [x],
            ),
        )
        if d == 1:
            for inc in (True, False):
                yield (
                    f"ap{i}{inc}",
                    lambda k=k, s=s, p=p, c=c, inc=inc: (F.avg_pool2d(x, k, s, p, c, inc), [x]),
                )
            yield f"apd{i}", lambda k=k, s=s, p=p, c=c: (F.avg_pool2d(x, k, s, p, c, True, 3), [x])
        if isinstance(k, int):
            yield f"mp3{i}", lambda k=k, s=s, p=p, d=d, c=c: (F.max_pool3d(x3, k, s, p, d, c), [x3])
            yield f"mp1{i}", lambda k=k, s=s, p=p, d=d, c=c: (F.max_pool1d(x1, k, s, p, d, c), [x1])
            if d == 1:
                yield f"ap3{i}", lambda k=k, s=s, p=p, c=c: (F.avg_pool3d(x3, k, s, p, c), [x3])
                yield f"ap1{i}", lambda k=k, s=s, p=p, c=c: (F.avg_pool1d(x1, k, s, p, c), [x1])
    for o in (1, 2, (3, 5), (None, 4), (7, 8), (9, 10)):
        yield f"aap{o}", lambda o=o: (F.adaptive_avg_pool2d(x, o), [x])
        yield f"amp{o}", lambda o=o: (F.adaptive_max_pool2d(x, o), [x])
    yield "aap3", lambda: (F.adaptive_avg_pool3d(x3, (2, 3, 4)), [x3])
    yield "aap_1d", lambda: (F.adaptive_avg_pool1d(x1, 4), [x1])
    yield "amp_1d", lambda: (F.adaptive_max_pool1d(x1, 4), [x1])
    xi = r.ints(0, 9, 1, 2, 5, 6)
    yield "imax", lambda: F.max_pool2d(xi, 2)
    yield "iavg", lambda: F.avg_pool2d(xi, 2)
    f = dict(grad=False, dtype="float32")
    rr = lambda *a: r(*a, **f)
    X = rr(2, 4, 3, 3)
    E = [
        lambda: F.max_pool2d(X, 2, padding=2),
        lambda: F.max_pool2d(X, 0),
        lambda: F.max_pool2d(X, 5),
        lambda: F.max_pool2d(X, 2, 0),
        lambda: F.max_pool2d(rr(3, 3), 2),
        lambda: F.max_pool2d(X, (2, 2, 2)),
        lambda: F.max_pool2d(X, 2, (1, 1, 1)),
        lambda: F.avg_pool2d(X, 2, padding=2),
        lambda: F.avg_pool2d(rr(3, 3), 2),
        lambda: F.avg_pool2d(X, 5),
        lambda: F.avg_pool2d(X, 2, divisor_override=0),
        lambda: F.adaptive_avg_pool2d(rr(3, 3), 2),
        lambda: F.adaptive_avg_pool2d(X, (-1, 2)),
        lambda: F.max_pool2d(rr(0, 4, 3, 3), 2),
        lambda: F.max_pool2d(rr(1, 0, 3, 3), 2),
        lambda: F.max_pool1d(rr(3), 2),
        lambda: F.avg_pool1d(rr(3), 2),
        lambda: F.max_pool2d(X, 2, dilation=0),
        lambda: F.max_pool1d(rr(2, 3, 4), 5),
        lambda: F.max_pool3d(rr(2, 3, 3), 2),
        lambda: F.adaptive_max_pool2d(rr(3, 3), 2),
        lambda: F.adaptive_avg_pool1d(rr(3), 2),
        lambda: F.adaptive_avg_pool3d(rr(3, 3), 2),
        lambda: F.max_pool2d(X, 2, -1),
        lambda: F.max_pool2d(X, 2, padding=-1),
        lambda: F.adaptive_avg_pool2d(X.long(), 2),
        lambda: F.max_pool2d(X.bool(), 2),
        lambda: F.avg_pool3d(rr(3, 3), 2),
        lambda: F.adaptive_avg_pool2d(rr(1, 0, 3, 3), 1),
        lambda: F.avg_pool2d(X, 2, -1),
        lambda: F.max_pool1d(rr(2, 3, 4), 2, 0),
        lambda: F.max_pool1d(rr(2, 3, 4), 2, padding=2),
        lambda: F.max_pool1d(rr(2, 3, 4), (2, 2)),
        lambda: F.max_pool2d(rr(1, 1, 0, 3), 2),
    ]
    for i, e in enumerate(E):
        yield f"err{i}", e
    for m, z in (
        ("nearest", x),
        ("nearest-exact", x),
        ("bilinear", x),
        ("bicubic", x),
        ("area", x),
        ("linear", x1),
        ("nearest", x1),
        ("trilinear", x3),
        ("nearest", x3),
        ("area", x3),
    ):
        n = z.dim() - 2
        for sz in ([3, 11, 5][:n], [14, 4, 9][:n], list(z.shape[2:])):
            for ac in (False, True) if "lin" in m or "cub" in m else (None,):
                yield (
                    f"int {m}{n} {sz} {ac}",
                    lambda m=m, z=z, sz=sz, ac=ac: (
                        F.interpolate(z, sz, mode=m, align_corners=ac),
                        [z],
                    ),
                )
        for sf in (2, 0.6, 1.7):
            yield (
                f"int {m}{n} sf{sf}",
                lambda m=m, z=z, sf=sf: (F.interpolate(z, scale_factor=sf, mode=m), [z]),
            )
            yield (
                f"int {m}{n} sf{sf}r",
                lambda m=m, z=z, sf=sf: (
                    F.interpolate(z, scale_factor=sf, mode=m, recompute_scale_factor=True),
                    [z],
                ),
            )
    xb = r(2, 3, 17, 20)
    for m in ("bilinear", "bicubic"):
        for sz in ((5, 6), (20, 33), (17, 7)):
            yield (
                f"aa {m}{sz}",
                lambda m=m, sz=sz: (F.interpolate(xb, sz, mode=m, antialias=True), [xb]),
            )
    yield "i1", lambda: F.interpolate(X, 3, mode="linear")
    yield "i2", lambda: F.interpolate(X, (1, 2, 3))
    yield "i3", lambda: F.interpolate(X)
    yield "i4", lambda: F.interpolate(X, 2, 2)
    yield "i5", lambda: F.interpolate(X, 2, mode="foo")
    yield "i6", lambda: F.interpolate(X, 0)
    yield "i7", lambda: F.interpolate(X, 2, align_corners=True)
    yield "i8", lambda: F.upsample(X, scale_factor=2)
    yield "lrn", lambda: (F.local_response_norm(x, 3), [x])
