"""Per-sample gradients by `vmap` against a loop, Jacobians and Hessians; torch in the same run where it is.

python -m benchmarks.transforms [--rounds 3] [--repeat 5] [--threads 2] [--json FILE]
    [--peer-python /path/to/python with torch]

Each round starts a fresh process for either side, in turn.  A case's time is the least processor time of `--repeat`
calls after one to warm up, printed is the median over the rounds: so other programs change little.  `loop / vmap` is
what vmap wins; that of the larger network is bound by memory, whose gradients are 60 MB: `fill` is the time in which
they can be filled with a number, and no vmap can be faster.  1 where the small network's vmap wins less than 20 times.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import subprocess
import sys
from pathlib import Path

CHILD = """
import json, sys, time
side, threads, repeat = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
if side == "engine":
    import engine as t
    from engine.func import functional_call, grad, hessian, jacfwd, jacrev, vmap
else:
    import torch as t
    from torch.func import functional_call, grad, hessian, jacfwd, jacrev, vmap
t.set_num_threads(threads)
F, nn = t.nn.functional, t.nn
def mlp(*sizes):
    layers = []
    for a, b in zip(sizes, sizes[1:]):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*layers[:-1])
def timed(run):
    times = []
    for _ in range(repeat + 1):
        start = time.process_time()
        kept = run()
        times.append(time.process_time() - start)
        del kept
    return min(times[1:]) * 1e3
def per_sample(*sizes):
    model = mlp(*sizes)
    params = {name: p.detach() for name, p in model.named_parameters()}
    x, y = t.randn(128, sizes[0]), t.randint(0, sizes[-1], (128,))
    def loss(params, x, y):
        return F.cross_entropy(functional_call(model, params, (x.unsqueeze(0),)), y.unsqueeze(0))
    each = vmap(grad(loss), in_dims=(None, 0, 0))
    return timed(lambda: each(params, x, y)), timed(lambda: [grad(loss)(params, x[i], y[i]) for i in range(128)])
found = {}
found["vmap 20-32-32-5"], found["loop 20-32-32-5"] = per_sample(20, 32, 32, 5)
found["vmap 784-128-128-10"], found["loop 784-128-128-10"] = per_sample(784, 128, 128, 10)
room = t.empty(128, 784 * 128 + 128 * 128 + 1280 + 266)
found["fill 784-128-128-10"] = timed(lambda: room.fill_(1.0))
model, x = mlp(20, 32, 32, 5), t.randn(20)
def energy(x):
    return model(x).square().sum()
found["jacrev"], found["jacfwd"] = timed(lambda: jacrev(model)(x)), timed(lambda: jacfwd(model)(x))
found["hessian"] = timed(lambda: hessian(energy)(x))
print(json.dumps(found))
"""


def measure(python: str, side: str, options: argparse.Namespace) -> dict[str, float]:
    """One process's times in ms."""
    command = [python, "-c", CHILD, side, str(options.threads), str(options.repeat)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[1])
    if done.returncode:
        raise SystemExit(f"{side}: {done.stderr.strip().splitlines()[-1]}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> int:
    """Measure and print; 1 where a limit does not hold."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--peer-python", help="interpreter with torch")
    parser.add_argument("--json", type=Path, help="write the result here")
    options = parser.parse_args()
    pythons = {"engine": sys.executable}
    if options.peer_python or importlib.util.find_spec("torch"):
        pythons["torch"] = options.peer_python or sys.executable
    rounds = [{side: measure(python, side, options) for side, python in pythons.items()} for _ in range(options.rounds)]
    times = {
        side: {case: statistics.median(r[side][case] for r in rounds) for case in rounds[0][side]} for side in pythons
    }
    print(f"{options.threads} threads, {options.rounds} alternating rounds, processor time in ms")
    for case in times["engine"]:
        print(f"{case:20} " + "   ".join(f"{side} {found[case]:8.2f}" for side, found in times.items()))
    wins = {}
    for net in ("20-32-32-5", "784-128-128-10"):
        wins[net] = {side: found[f"loop {net}"] / found[f"vmap {net}"] for side, found in times.items()}
        print(f"loop / vmap, {net}: " + ", ".join(f"{side} {ratio:.1f}" for side, ratio in wins[net].items()))
    if options.json:
        document = {"threads": options.threads, "rounds": options.rounds, "cpu_ms": times, "loop_by_vmap": wins}
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    return int(wins["20-32-32-5"]["engine"] < 20)


if __name__ == "__main__":
    sys.exit(main())
