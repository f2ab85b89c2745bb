"""Cases of normalization; see `cases/__init__.py`."""


def cases(T, nn, F, r):
    def bn(shape, training, wb=True, dt="float64", track=True, mom=0.1):
        x = r(*shape, dtype=dt)
        C = shape[1]
        w = r(C, dtype=dt) if wb else None
        b = r(C, dtype=dt) if wb else None
        rm = r(C, grad=False, dtype=dt) if track else None
        rv = r.pos(C, grad=False).to(x.dtype) if track else None

        def f():
            y = T.batch_norm(x, w, b, rm, rv, training, mom, 1e-3, False)
            return [y] + ([rm, rv] if track else []), [q for q in (x, w, b) if q is not None]

        return f

    for i, a in enumerate(
        [
            ((4, 3, 5, 5), True),
            ((4, 3), True),
            ((4, 3, 7), True, False),
            ((4, 3, 5, 5), False),
            ((4, 3), False, False),
            ((4, 3, 40), True, True, "float32"),
            ((4, 3, 5, 5), True, True, "float16"),
            ((2, 3, 50, 50), True),
        ]
    ):
        yield f"bn{i}", bn(*a)

    def gg(f, *xs):
        def g():
            y = f(*xs)
            g1 = T.autograd.grad((y * y).sum(), xs, create_graph=True)
            s = sum((q * q * q).sum() for q in g1)
            return list(T.autograd.grad(s, xs))

        return g

    x = r(4, 3, 5)
    w = r(3)
    b = r(3)
    yield (
        "bngg",
        gg(lambda x, w, b: T.batch_norm(x, w, b, None, None, True, 0.1, 1e-3, False), x, w, b),
    )
    rm = r(3, grad=False)
    rv = r.pos(3, grad=False)
    yield (
        "bneval gg",
        gg(lambda x, w, b: T.batch_norm(x, w, b, rm, rv, False, 0.1, 1e-3, False), x, w, b),
    )
    xl = r(3, 4, 5)
    wl = r(4, 5)
    bl = r(4, 5)
    yield "ln", lambda: (T.layer_norm(xl, (4, 5), wl, bl), [xl, wl, bl])
    yield "lngg", gg(lambda x, w, b: T.layer_norm(x, (4, 5), w, b), xl, wl, bl)
    yield "ln2", lambda: (T.layer_norm(xl, (5,)), [xl])
    xL = r(50, 300, dtype="float32")
    wL = r(300, dtype="float32")
    yield "lnf", lambda: (T.layer_norm(xL, (300,), wL), [xL, wL])
    xG = r(4, 6, 5)
    wG = r(6)
    bG = r(6)
    yield "gn", lambda: (T.group_norm(xG, 3, wG, bG), [xG, wG, bG])
    yield "gngg", gg(lambda x, w, b: T.group_norm(x, 3, w, b), xG, wG, bG)
    yield "gn2", lambda: (T.group_norm(xG, 1), [xG])
    yield "rms", lambda: (T.rms_norm(xl, (5,)), [xl])
    yield "rms2", lambda: (T.rms_norm(xl, (4, 5), wl, 1e-2), [xl, wl])

    def inn(track, use):
        rm = r(6, grad=False)
        rv = r.pos(6, grad=False)

        def f():
            y = T.instance_norm(xG, wG, bG, rm if track else None, rv if track else None, use, 0.1, 1e-4, False)
            return [y, rm, rv], [xG, wG, bG]

        return f

    yield "in1", inn(False, True)
    yield "in2", inn(True, True)
    yield "in3", inn(True, False)
    f = dict(grad=False, dtype="float32")
    x = r(2, 4, 3, 3, **f)
    E = [
        lambda: T.batch_norm(x, None, None, None, None, False, 0.1, 1e-5, True),
        lambda: T.batch_norm(x, None, None, r(3, **f), r(3, **f), False, 0.1, 1e-5, True),
        lambda: T.batch_norm(x, r(3, **f), None, None, None, True, 0.1, 1e-5, True),
        lambda: T.batch_norm(x.double(), r(4, **f), None, None, None, True, 0.1, 1e-5, True),
        lambda: T.batch_norm(x, None, None, None, None, True, 0.1, -1.0, True),
        lambda: T.layer_norm(x, (4, 3)),
        lambda: T.layer_norm(x, ()),
        lambda: T.layer_norm(x, (3, 3), r(3, **f)),
        lambda: T.layer_norm(x, 3),
        lambda: T.layer_norm(x.double(), (3, 3), r(3, 3, **f)),
        lambda: T.layer_norm(x.long(), (3, 3)),
        lambda: T.group_norm(x, 3),
        lambda: T.group_norm(x, 2, r(3, **f)),
        lambda: T.rms_norm(x, (4,)),
        lambda: T.rms_norm(x, (3,), r(2, **f)),
        lambda: T.batch_norm(x.half(), None, None, r(4, **f), r.pos(4, grad=False).float(), False, 0.1, 1e-5, True),
        lambda: T.instance_norm(x, None, None, None, None, False, 0.1, 1e-5, True),
        lambda: T.batch_norm(r(0, 4, 1, 1, **f), None, None, None, None, True, 0.1, 1e-5, False),
    ]
    for i, e in enumerate(E):
        yield f"err{i}", e
