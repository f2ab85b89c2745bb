"""Cases of convolution; see `cases/__init__.py`."""


def cases(T, nn, F, r):
    for n, (N, C, H, W, O, k, s, p, d, g, b) in enumerate(
        [
            (2, 4, 9, 8, 6, (3, 3), 1, 1, 1, 1, 1),
            (2, 4, 9, 8, 6, (3, 2), 2, (1, 0), 1, 2, 1),
            (1, 4, 9, 8, 4, (3, 3), 1, 1, 2, 4, 0),
            (3, 4, 9, 8, 8, (3, 3), 2, 1, 1, 4, 1),
            (2, 4, 9, 8, 6, 1, 1, 0, 1, 1, 1),
            (2, 4, 9, 8, 6, 1, 2, 0, 1, 2, 1),
            (2, 4, 9, 8, 6, 1, 2, 1, 1, 1, 1),
            (2, 4, 9, 8, 6, (5, 5), 1, 4, 1, 1, 1),
            (2, 3, 20, 20, 6, (7, 7), 2, 3, 1, 1, 1),
            (2, 4, 9, 8, 6, (3, 3), (2, 3), "valid", (2, 1), 1, 1),
            (2, 4, 9, 8, 6, (3, 3), 1, "same", 2, 1, 1),
            (2, 4, 9, 8, 6, (2, 4), 1, "same", 1, 1, 1),
        ]
    ):
        k = (k, k) if isinstance(k, int) else k
        x = r(N, C, H, W)
        w = r(O, C // g, *k)
        bb = r(O) if b else None
        yield (
            f"conv2d{n}",
            lambda x=x, w=w, bb=bb, s=s, p=p, d=d, g=g: (
                T.conv2d(x, w, bb, s, p, d, g),
                [x, w] + ([bb] if bb is not None else []),
            ),
        )
        if not isinstance(p, str):
            for op in (0, 1):
                y = r(N, O, H, W)
                w2 = r(O, C // g, *k)
                b2 = r(C) if b else None
                yield (
                    f"convT{n}{op}",
                    lambda x=y, w=w2, bb=b2, s=s, p=p, d=d, g=g, op=op: (
                        T.conv_transpose2d(x, w, bb, s, p, op, g, d),
                        [x, w] + ([bb] if bb is not None else []),
                    ),
                )
    x = r(2, 3, 30)
    w = r(4, 3, 5)
    yield "c1", lambda: (T.conv1d(x, w, None, 3, 2), [x, w])
    x1 = r(3, 30)
    yield "c1u", lambda: (T.conv1d(x1, w, None, 3, 2), [x1, w])
    x3 = r(2, 3, 5, 6, 7)
    w3 = r(4, 3, 2, 3, 3)
    yield "c3", lambda: (T.conv3d(x3, w3, None, (1, 2, 1), (1, 1, 0)), [x3, w3])
    w4 = r(3, 4, 2, 3, 3)
    yield (
        "ct3",
        lambda: (T.conv_transpose3d(x3, w4, None, (1, 2, 1), (1, 1, 0), (0, 1, 0)), [x3, w4]),
    )
    xh = r(2, 3, 9, 9, dtype="float16")
    wh = r(4, 3, 3, 3, dtype="float16")
    yield "half", lambda: (T.conv2d(xh, wh), [xh, wh])
    xf = r(2, 3, 9, 9, dtype="float32")
    wf = r(4, 3, 3, 3, dtype="float32")
    yield "f32", lambda: (T.conv2d(xf, wf, None, 1, 1), [xf, wf])
    xc = r.arr(r.r.randn(2, 3, 6, 6) + 1j * r.r.randn(2, 3, 6, 6))
    wc = r.arr(r.r.randn(4, 3, 3, 3) + 1j * r.r.randn(4, 3, 3, 3))
    yield "cplx", lambda: T.conv2d(xc, wc)
    yield "cplxg", lambda: list(T.autograd.grad(T.conv2d(xc, wc).abs().sum(), [xc, wc]))
    rr = lambda *a: r(*a, dtype="float32", grad=False)
    E = [
        lambda: T.conv2d(rr(1, 4, 5, 5), rr(6, 3, 3, 3)),
        lambda: T.conv2d(rr(5, 5), rr(6, 3, 3, 3)),
        lambda: T.conv2d(rr(1, 3, 2, 2), rr(6, 3, 3, 3)),
        lambda: T.conv2d(rr(1, 3, 5, 5), rr(6, 3, 3, 3), rr(5)),
        lambda: T.conv2d(rr(1, 3, 5, 5), rr(6, 3, 3, 3), stride=(1, 1, 1)),
        lambda: T.conv2d(rr(1, 3, 5, 5), rr(6, 3, 3, 3), stride=0),
        lambda: T.conv2d(rr(1, 3, 5, 5), rr(6, 3, 3, 3), padding=-1),
        lambda: T.conv2d(rr(1, 3, 5, 5), rr(6, 3, 3, 3), dilation=0),
        lambda: T.conv2d(rr(1, 3, 5, 5), rr(6, 3, 3, 3), groups=0),
        lambda: T.conv2d(rr(1, 4, 5, 5), rr(5, 2, 3, 3), groups=2),
        lambda: T.conv2d(rr(1, 4, 5, 5), rr(1, 2, 3, 3), groups=2),
        lambda: T.conv2d(rr(1, 3, 5, 5).double(), rr(6, 3, 3, 3)),
        lambda: T.conv2d(rr(1, 3, 5, 5), rr(6, 3, 3, 3), rr(6).double()),
        lambda: T.conv2d(rr(1, 3, 5, 5), rr(6, 3, 3)),
        lambda: T.conv2d(rr(0, 3, 5, 5), rr(6, 3, 3, 3)),
        lambda: T.conv2d(rr(1, 3, 5, 5), rr(0, 3, 3, 3)),
        lambda: T.conv2d(rr(1, 3, 5, 5), rr(6, 3, 3, 3), padding="foo"),
        lambda: T.conv2d(rr(1, 3, 5, 5), rr(6, 3, 3, 3), padding="same", stride=2),
        lambda: T.conv2d(rr(1, 3, 0, 5), rr(6, 3, 1, 1)),
        lambda: T.conv2d(rr(1, 3, 5, 5), rr(6, 3, 0, 1)),
        lambda: T.conv_transpose2d(rr(1, 3, 5, 5), rr(4, 6, 3, 3)),
        lambda: T.conv_transpose2d(rr(1, 3, 5, 5), rr(3, 6, 3, 3), output_padding=1),
        lambda: T.conv_transpose2d(rr(1, 3, 5, 5), rr(3, 6, 3, 3), output_padding=-1, stride=2),
        lambda: T.conv_transpose2d(rr(1, 3, 5, 5), rr(3, 6, 3, 3), rr(5)),
        lambda: T.conv_transpose2d(rr(1, 3, 1, 1), rr(3, 6, 3, 3), padding=3),
        lambda: T.conv_transpose2d(rr(1, 4, 5, 5), rr(4, 6, 3, 3), groups=3),
        lambda: T.conv1d(rr(5), rr(6, 3, 3)),
    ]
    for i, e in enumerate(E):
        yield f"err{i}", e
