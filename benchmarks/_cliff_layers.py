"""Cases of `cliffs` that read several tensors, or modules: convolutions, products, norms, cells, losses, transforms."""

from __future__ import annotations

from random import Random

from benchmarks._cliff_cases import (
    CASES,
    ROWS,
    Case,
    case,
    drawn,
    even,
    floats,
    image,
    integers,
    signal,
    tokens,
    video,
)

__all__ = ["CASES", "Case"]  # of both files


@drawn
def conv2d(r: Random) -> Case:
    n, c, h, w = image(r, 1_000_000)
    k, out = r.choice((1, 1, 3, 3, 3, 5, 7)), r.choice((16, 32, 64, 128, 256))
    out = min(out, max(16, 500_000_000 // (n * c * h * w * k * k)))
    stride = r.choice((1, 1, 2))
    return case(
        "conv2d", f"F.conv2d(x, w, b, {stride}, {k // 2})", x=floats(n, c, h, w), w=floats(out, c, k, k), b=floats(out)
    )


@drawn
def conv2d_depthwise(r: Random) -> Case:
    n, c, h, w = image(r, 1_000_000)
    k, stride = r.choice(((3, 3), (3, 3), (5, 5), (7, 7), (64, 1), (1, 9))), r.choice((1, 1, 2))
    pad = (k[0] // 2, k[1] // 2)
    return case(
        "conv2d_depthwise", f"F.conv2d(x, w, None, {stride}, {pad}, 1, {c})", x=floats(n, c, h, w), w=floats(c, 1, *k)
    )


@drawn
def conv2d_grouped(r: Random) -> Case:
    n, c, h, w = even(image(r, 500_000), 32)
    groups, d = r.choice((2, 4, 8, 32)), r.choice((1, 1, 2))
    return case(
        "conv2d_grouped",
        f"F.conv2d(x, w, None, 1, {d}, {d}, {groups})",
        x=floats(n, c, h, w),
        w=floats(c, c // groups, 3, 3),
    )


@drawn
def conv_transpose2d(r: Random) -> Case:
    n, c, h, w = image(r, 200_000)
    k, s, p = r.choice(((2, 2, 0), (4, 2, 1), (3, 2, 1)))
    out = r.choice((16, 32, 64))
    return case(
        "conv_transpose2d", f"F.conv_transpose2d(x, w, None, {s}, {p})", x=floats(n, c, h, w), w=floats(c, out, k, k)
    )


@drawn
def conv1d(r: Random) -> Case:
    n, c, length = signal(r)
    k, out, s = r.choice((1, 3, 5, 9, 31)), r.choice((16, 64, 128, 256)), r.choice((1, 1, 2))
    groups, out = r.choice(((1, out), (1, out), (c, c)))
    n = max(1, min(n, 10**9 // (c * length * k * out // groups)))
    d = r.choice((1, 1, 1, 4)) if k < 9 else 1
    text = f"F.conv1d(x, w, b, {s}, {k // 2 * d}, {d}, {groups})"
    return case("conv1d", text, x=floats(n, c, length), w=floats(out, c // groups, k), b=floats(out))


@drawn
def conv_transpose1d(r: Random) -> Case:
    _, c, length = signal(r)
    k, s = r.choice(((4, 2), (16, 8), (8, 4)))
    return case(
        "conv_transpose1d",
        f"F.conv_transpose1d(x, w, None, {s})",
        x=floats(1, min(c, 256), min(length, 1000)),
        w=floats(min(c, 256), 32, k),
    )


@drawn
def conv3d(r: Random) -> Case:
    _, c, *sizes = video(r)
    k, groups = r.choice((((3, 3, 3), 1), ((1, 3, 3), 1), ((3, 1, 1), 1), ((1, 1, 1), 1), ((3, 3, 3), c)))
    out = c if groups > 1 else r.choice((16, 32, 54))
    pad = tuple(side // 2 for side in k)
    return case(
        "conv3d", f"F.conv3d(x, w, None, 1, {pad}, 1, {groups})", x=floats(1, c, *sizes), w=floats(out, c // groups, *k)
    )


@drawn
def norms(r: Random) -> Case:
    n, c, h, w = even(image(r), 32)
    x = floats(n, c, h, w)
    text = r.choice(
        (
            "F.batch_norm(x, d, e, g, h, False)",
            "F.batch_norm(x, d.detach(), e.detach(), g, h, True)",
            "F.group_norm(x, 32, g, h)",
            "F.instance_norm(x)",
            "F.layer_norm(x, x.shape[1:])",
            "F.layer_norm(x.permute(0, 2, 3, 1), (x.shape[1],), g, h)",
        )
    )
    return case(
        "norms", text, "True)" not in text or "detach" in text, x=x, g=floats(c), h=floats(c), d=floats(c), e=f"p:{c}"
    )


@drawn
def norms_of_tokens(r: Random) -> Case:
    n, length, c = tokens(r)
    text = r.choice(("F.layer_norm(x, (x.shape[-1],), g, h)", "F.rms_norm(x, (x.shape[-1],), g)"))
    return case("norms_of_tokens", text, x=floats(n, length, c), g=floats(c), h=floats(c))


@drawn
def linear(r: Random) -> Case:
    n, length, c = tokens(r)
    out = r.choice((64, 128, 256, 1000, 3 * c, 4 * c))
    n = max(1, min(n, 10**9 // (length * c * out)))
    return case("linear", "F.linear(x, w, b)", x=floats(n, length, c), w=floats(out, c), b=floats(out))


@drawn
def linear_of_rows(r: Random) -> Case:
    n, c = r.choice(ROWS)
    return case(
        "linear_of_rows",
        "F.linear(x, w, b)",
        x=floats(n, c),
        w=floats(out := r.choice((1, 2, 10, 64, 1000)), c),
        b=floats(out),
    )


@drawn
def bmm(r: Random) -> Case:
    n, a, b, c = r.choice(
        ((12, 128, 64, 128), (96, 49, 32, 49), (8, 64, 256, 64), (1, 512, 512, 512), (256, 16, 16, 16), (1000, 3, 3, 3))
    )
    return case("bmm", "t.bmm(x, y)", x=floats(n, a, b), y=floats(n, b, c))


@drawn
def einsum(r: Random) -> Case:
    text, x, y = r.choice(
        (
            ("bhid,bhjd->bhij", (1, 8, 128, 64), (1, 8, 128, 64)),
            ("nctv,vw->nctw", (2, 64, 50, 25), (25, 25)),
            ("bchw,cd->bdhw", (2, 64, 28, 28), (64, 32)),
            ("bnd,bne->bde", (4, 256, 32), (4, 256, 32)),
            ("bid,bjd->bij", (4, 100, 64), (4, 100, 64)),
        )
    )
    return case("einsum", f"t.einsum({text!r}, x, y)", x=floats(*x), y=floats(*y))


@drawn
def attention(r: Random) -> Case:
    n, heads, length, width = r.choice(
        ((1, 12, 128, 64), (1, 12, 197, 64), (8, 8, 50, 32), (1, 8, 512, 64), (64, 3, 49, 32), (2, 4, 20, 16))
    )
    causal = r.choice((False, False, True))
    return case(
        "attention",
        f"F.scaled_dot_product_attention(q, k, v, is_causal={causal})",
        **dict.fromkeys("qkv", floats(n, heads, length, width)),
    )


@drawn
def embedding(r: Random) -> Case:
    count, width = r.choice(((30522, 768), (10000, 128), (1000, 32), (50257, 384), (100, 16)))
    return case(
        "embedding",
        "F.embedding(i, w)",
        i=integers(count, *r.choice(((1, 128), (8, 64), (32, 20), (4, 512)))),
        w=floats(count, width),
    )


@drawn
def embedding_bag(r: Random) -> Case:
    return case(
        "embedding_bag",
        "F.embedding_bag(i, w, mode='mean')",
        i=integers(1000, r.choice((16, 256)), 20),
        w=floats(1000, r.choice((16, 64))),
    )


@drawn
def rows_by_index(r: Random) -> Case:
    nodes, edges, width = r.choice(((2708, 10556, 16), (500, 4000, 64), (10000, 50000, 8), (100, 1000, 128)))
    x, i = floats(nodes, width), integers(nodes, edges)
    text = r.choice(("x.index_select(0, i)", "x[i]", "t.zeros_like(x).index_add(0, i, y)", "x.index_add(0, i, y)"))
    if r.random() < 0.4:
        text = "t.zeros_like(x).scatter_add(0, i[:, None].expand_as(y), y)"
    return case("rows_by_index", text, x=x, i=i, y=floats(edges, width))


@drawn
def gather(r: Random) -> Case:
    n, length, c = tokens(r)
    return case("gather", "t.gather(x, 1, i)", x=floats(n, length, c), i=integers(length, n, min(length, 64), c))


@drawn
def grid_sample(r: Random) -> Case:
    n, c, h, w = image(r, 500_000)
    mode, pad = r.choice(("bilinear", "bilinear", "nearest")), r.choice(("zeros", "border"))
    return case(
        "grid_sample",
        f"F.grid_sample(x, g.tanh(), {mode!r}, {pad!r}, align_corners=False)",
        x=floats(n, c, h, w),
        g=floats(n, h, w, 2),
    )


@drawn
def affine_grid(r: Random) -> Case:
    n, c, h, w = image(r, 500_000)
    return case("affine_grid", f"F.affine_grid(m, {(n, c, h, w)}, align_corners=False)", m=floats(n, 2, 3))


@drawn
def cells(r: Random) -> Case:
    n, wide, hidden = r.choice((1, 8, 32, 64)), r.choice((64, 128, 256)), r.choice((64, 128, 512))
    kind = r.choice(("LSTMCell", "GRUCell", "RNNCell"))
    return case("cells", "m(x)[0]", x=floats(n, wide), modules={"m": f"t.nn.{kind}({wide}, {hidden})"})


@drawn
def recurrent(r: Random) -> Case:
    n, length, wide, hidden = (
        r.choice((1, 4, 16)),
        r.choice((20, 50, 100)),
        r.choice((40, 128)),
        r.choice((64, 128, 256)),
    )
    kind, both = r.choice(("LSTM", "GRU")), r.choice((False, True))
    return case(
        "recurrent",
        "m(x)[0]",
        x=floats(n, length, wide),
        modules={"m": f"t.nn.{kind}({wide}, {hidden}, batch_first=True, bidirectional={both})"},
    )


@drawn
def losses(r: Random) -> Case:
    n, c = r.choice(((128, 10), (64, 1000), (512, 2), (1024, 100), (16, 30522)))
    text = r.choice((
        "F.cross_entropy(x, i)", "F.mse_loss(x, y)", "F.smooth_l1_loss(x, y)", "F.kl_div(x, y, reduction='sum')",
        "F.binary_cross_entropy_with_logits(x, y.sigmoid())", "F.l1_loss(x, y)", "F.cosine_similarity(x, y)",
        "F.nll_loss(x, i)", "F.huber_loss(x, y)", "t.cdist(x[:128], y[:128])", "F.triplet_margin_loss(x, y, x * 0.5)",
    ))  # fmt: skip
    return case("losses", text, x=floats(n, c), y=floats(n, c), i=integers(c, n))


@drawn
def cross_entropy_of_pixels(r: Random) -> Case:
    n, c, side = r.choice(((1, 21, 128), (2, 2, 256), (4, 19, 64)))
    return case(
        "cross_entropy_of_pixels", "F.cross_entropy(x, i)", x=floats(n, c, side, side), i=integers(c, n, side, side)
    )


@drawn
def ctc_loss(r: Random) -> Case:
    length, n, c = r.choice(((50, 16, 28), (100, 4, 64), (26, 32, 37)))
    text = f"F.ctc_loss(F.log_softmax(x, -1), i + 1, t.full(({n},), {length}), t.full(({n},), 10))"
    return case("ctc_loss", text, x=floats(length, n, c), i=integers(c - 1, n, 10))


@drawn
def stft(r: Random) -> Case:
    n, size = r.choice((1, 4, 16)), r.choice((400, 512, 1024, 2048))
    length = r.choice((16000, 22050, 48000))
    text = f"t.stft(x, {size}, {size // 4}, window=w.detach(), return_complex=True).abs()"
    return case("stft", text, x=floats(n, length), w=f"p:{size}")


@drawn
def istft(r: Random) -> Case:
    size, frames = r.choice((512, 1024, 2048)), r.choice((50, 200))
    text = f"t.istft(t.complex(x, y), {size}, {size // 4}, window=w.detach())"
    shape = floats(r.choice((1, 2)), size // 2 + 1, frames)
    return case("istft", text, x=shape, y=shape, w=f"p:{size}")


@drawn
def linalg(r: Random) -> Case:
    n, side = r.choice(((1, 64), (1, 256), (100, 3), (64, 4), (16, 16), (1000, 3)))
    square = f"(x @ x.mT + 5 * t.eye({side}))"
    text = r.choice(
        (
            "t.linalg.inv(A)",
            "t.linalg.cholesky(A)",
            "t.linalg.solve(A, x)",
            "t.linalg.det(A)",
            "t.linalg.eigh(A)[0]",
            "t.linalg.svd(x)[1]",
            "t.linalg.qr(A)[0]",
            "t.logdet(A)",
        )
    )
    return case("linalg", text.replace("A", square), x=floats(n, side, side))


@drawn
def broadcast(r: Random) -> Case:
    n, c, h, w = image(r)
    other = r.choice(
        (
            (1, c, 1, 1),
            (n, c, 1, 1),
            (n, 1, h, w),
            (n, 1, h, 1),
            (1, 1, 1, w),
            (n, c, h, 1),
            (n, 1, 1, w),
            (c, h, w),
            (n, 1, 1, 1),
        )
    )
    return case(
        "broadcast",
        r.choice(("x * y", "x + y", "x - y", "x / (y * y + 1)", "t.maximum(x, y)")),
        x=floats(n, c, h, w),
        y=floats(*other),
    )


@drawn
def complex_numbers(r: Random) -> Case:
    shape = floats(r.choice((1, 4)), r.choice((257, 513)), r.choice((50, 200)))
    text = r.choice(
        (
            "t.complex(x, y).abs()",
            "t.complex(x, y).angle()",
            "(t.complex(x, y) * t.complex(y, x)).real",
            "t.polar(x, y).imag",
            "t.exp(t.complex(x, y)).real",
        )
    )
    return case("complex_numbers", text, x=shape, y=shape)


@drawn
def squeeze_and_excite(r: Random) -> Case:
    n, c, h, w = even(image(r, 1_000_000), 16)
    text = "x * t.sigmoid(F.conv2d(F.relu(F.conv2d(F.adaptive_avg_pool2d(x, 1), a)), b))"
    return case("squeeze_and_excite", text, x=floats(n, c, h, w), a=floats(c // 4, c, 1, 1), b=floats(c, c // 4, 1, 1))


@drawn
def fold(r: Random) -> Case:
    k, side, c = r.choice(((3, 28, 16), (2, 56, 8), (7, 14, 8), (16, 14, 3)))
    return case("fold", f"F.fold(x, {side * k}, {k}, stride={k})", x=floats(1, c * k * k, side * side))


@drawn
def cosine_classifier(r: Random) -> Case:
    n, c, h, w = image(r, 200_000)
    weight = "w / w.flatten(1).norm(dim=1)[:, None, None, None]"
    norm = "(F.avg_pool2d((x * x).sum(1, keepdim=True), 3, 1, 1) * 9 + 1e-6).sqrt()"
    text = f"F.conv2d(x, {weight}, padding=1) / {norm}"
    return case("cosine_classifier", text, x=floats(n, c, h, w), w=floats(32, c, 3, 3))


@drawn
def rotary(r: Random) -> Case:
    heads, length, width = r.choice(((12, 128, 64), (8, 512, 64), (4, 32, 32)))
    half = width // 2
    text = f"x * t.cos(y) + t.cat((-x[..., {half}:], x[..., :{half}]), -1) * t.sin(y)"
    return case("rotary", text, x=floats(1, heads, length, width), y=floats(length, width))
