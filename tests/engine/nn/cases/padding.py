"""Cases of padding; see `cases/__init__.py`."""


def cases(T, nn, F, r):
    x3 = r(2, 3, 5)
    x4 = r(2, 3, 5, 6)
    x5 = r(1, 2, 4, 5, 6)
    x2 = r(3, 5)
    for m in ("reflect", "replicate", "circular", "constant"):
        for nm, x, p in (
            ("x3", x3, (1, 2)),
            ("x2", x2, (2, 1)),
            ("x4", x4, (1, 2, 3, 1)),
            ("x3b", x3, (1, 2, 1, 1)),
            ("x5", x5, (1, 2, 3, 1, 1, 2)),
            ("x4n", x4, (-1, 2, 1, -1)),
            ("x4n2", x4, (-1, -2, -1, -1)),
            ("big", x4, (6, 6, 1, 1)),
            ("odd", x3, (1, 2, 1)),
            ("x3few", x4, (1, 2)),
            ("neg", x3, (-3, -3)),
            ("many", x2, (1, 1, 1, 1, 1, 1)),
        ):
            yield f"{m} {nm}", lambda x=x, p=p, m=m: (F.pad(x, p, m), [x])
    yield "val", lambda: F.pad(x3, (1, 1), "reflect", 1.0)
    yield "val2", lambda: F.pad(x3, (1, 1), "constant", 1.5)
    yield "foo", lambda: F.pad(x3, (1, 1), "foo")
    e = r(2, 0, 5)
    yield "emp", lambda: F.pad(e, (1, 1), "reflect")
    e2 = r(0, 3, 5)
    yield "emp2", lambda: F.pad(e2, (1, 1), "reflect")
    xi = r.ints(0, 9, 2, 3)
    yield "int", lambda: F.pad(xi, (1, 1), value=3)
    yield "int2", lambda: F.pad(xi, (1, 1), "replicate")
